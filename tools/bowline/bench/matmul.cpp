// `bowline bench matmul`: time of a matrix product.
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "bench/floor.h"
#include "bench/verbs.h"
#include "common/flags.h"
#include "common/report.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct MatmulOptions {
  int64_t m = 768;
  int64_t n = 768;
  int64_t k = 768;
  int runs = 21;
  std::string layout = "nt";
  std::string dtype = "f32";
  std::string encoding;
  DeviceFlags device;
  std::string format = "text";
};

Result<int> matmul(const MatmulOptions& o) {
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  const DType dtype = compute_of(o.dtype).value_or(DType::f32);
  double seconds = 0;
  uint64_t b_bytes = 0;
  {
    BOWLINE_TRY_ASSIGN(Product product,
                       Product::create(device, o.m, o.n, o.k, o.layout, dtype, o.encoding));
    b_bytes = product.b_bytes();
    BOWLINE_TRY_ASSIGN(seconds, product.seconds(o.runs, 3));
  }
  BOWLINE_TRY_ASSIGN(const Machine machine, measure_machine(device, 64 << 20, dtype));
  const double flops =
      2.0 * static_cast<double>(o.m) * static_cast<double>(o.n) * static_cast<double>(o.k);
  const double bytes =
      static_cast<double>(size_of(dtype)) * static_cast<double>(o.m * o.k + o.m * o.n) +
      static_cast<double>(b_bytes);
  // This product is itself a candidate for the fastest one.
  const double best = std::max(machine.flops, flops / seconds);
  const double floor = std::max(flops / best, bytes / machine.bandwidth);
  if (o.format == "json") {
    const nlohmann::json j = {{"device", device.info().name},
                              {"m", o.m},
                              {"n", o.n},
                              {"k", o.k},
                              {"layout", o.layout},
                              {"dtype", o.dtype},
                              {"encoding", o.encoding.empty() ? "plain" : o.encoding},
                              {"b_bytes", b_bytes},
                              {"runs", o.runs},
                              {"time_ms", 1e3 * seconds},
                              {"gflops", flops / seconds / 1e9},
                              {"floor_ms", 1e3 * floor},
                              {"percent_of_floor", 100 * floor / seconds},
                              {"floor_flops", best},
                              {"floor_bandwidth", machine.bandwidth},
                              {"peak_rss_bytes", peak_resident_bytes()}};
    print_json(j);
    return kOk;
  }
  print("matmul {} {} m {} n {} k {} on {}\n", o.layout, o.dtype, o.m, o.n, o.k,
        device.info().name);
  print("time    {:.3f} ms, median of {} ({:.1f} GFLOP/s)\n", 1e3 * seconds, o.runs,
        flops / seconds / 1e9);
  print("floor   {:.3f} ms, {:.1f} percent of the time\n", 1e3 * floor, 100 * floor / seconds);
  print("        {}\n", machine.source);
  return kOk;
}

}  // namespace

void add_bench_matmul(CLI::App& bench, Context& context) {
  const auto [verb, o] = add_verb<MatmulOptions>(
      bench, context, matmul, "matmul", "Times one matrix product: A [m, k] by B [k, n]",
      "bowline bench matmul --m 768 --n 768 --k 768 --layout nt --device cpu");
  add_number(verb, "--m", o->m, "Rows of the result", 1, 1 << 16);
  add_number(verb, "--n", o->n, "Columns of the result", 1, 1 << 16);
  add_number(verb, "--k", o->k, "Columns of A, rows of B", 1, 1 << 16);
  add_choice(verb, "--layout", o->layout, "nt: B transposed; tn: A transposed", {"nn", "nt", "tn"});
  add_choice(verb, "--dtype", o->dtype, "Dtype of the matrices", {"f32", "bf16", "f16"});
  add_text(verb, "--encoding", o->encoding, "Encoding of B, such as int8 [none]", "ENCODING");
  add_number(verb, "--runs", o->runs, "Timed runs, after 3 runs to warm up", 7, 1000);
  add_device(verb, o->device);
  add_format(verb, o->format);
}

}  // namespace bowline::command
