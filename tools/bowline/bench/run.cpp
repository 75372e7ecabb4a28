// `bowline bench run`: time and memory of a run of an entry point.
#include <nlohmann/json.hpp>
#include <optional>

#include "base/escape.h"
#include "base/status.h"
#include "bench/c_session.h"
#include "bench/floor.h"
#include "bench/verbs.h"
#include "common/flags.h"
#include "common/inputs.h"
#include "common/report.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct BenchRunOptions : ModelOptions {
  std::string entry;
  std::string compute = "f32";
  std::vector<std::string> inputs;
  Changes changes;
  DimFlags dims;
  std::string c_library;
  int runs = 50;
};

constexpr int kWarmupRuns = 5;

struct Times {
  double cpp = 0;
  std::optional<double> c = {};
};

// Runs through the two interfaces take turns.
Result<Times> measure(const BenchRunOptions& o, const std::string& device,
                      const BoundEntryPoint& entry, Session& session,
                      std::span<const Tensor> inputs) {
  const auto run = [&] { return session.run(inputs, {}); };
  if (o.c_library.empty()) {
    BOWLINE_TRY_ASSIGN(const double seconds, median_seconds(o.runs, kWarmupRuns, run));
    return Times{seconds};
  }
  BOWLINE_REQUIRE(
      o.changes.encoding.empty() && o.changes.adapters.empty(),
      "--c-library runs the model as it is in the file, without --quantize and --adapter.");
  BOWLINE_TRY_ASSIGN(CSession other, CSession::open(o.c_library, o.model, device, entry, inputs));
  std::vector<double> cpp, c;
  for (int i = 0; i < kWarmupRuns + o.runs; ++i) {
    BOWLINE_TRY_ASSIGN(const double first, seconds_of(run));
    BOWLINE_TRY_ASSIGN(const double second, seconds_of([&] { return other.run(); }));
    if (i >= kWarmupRuns) {
      cpp.push_back(first);
      c.push_back(second);
    }
  }
  return Times{median(std::move(cpp)), median(std::move(c))};
}

Result<int> bench_run(const BenchRunOptions& o) {
  BOWLINE_TRY_ASSIGN(Model model, open_to_measure(o.model));
  BOWLINE_TRY(change(model, o.changes));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(const EntryPointInfo entry, entry_point(info, o.entry));
  BOWLINE_TRY_ASSIGN(std::vector<BoundDim> dims, dims_of(o.dims, info, &entry));
  BOWLINE_TRY_ASSIGN(Inputs inputs, make_inputs(entry, o.inputs, std::move(dims), "random:1"));
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY(model.to(device));
  const BoundEntryPoint bound{entry.name, inputs.dims, compute_of(o.compute)};
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, std::span(&bound, 1)));
  const std::vector<Tensor> tensors = inputs.tensors();
  BOWLINE_TRY_ASSIGN(const Times times, measure(o, device.info().name, bound, session, tensors));
  if (o.format == "json") {
    print_json({{"device", device.info().name},
                {"entry", entry.name},
                {"compute", o.compute},
                {"runs", o.runs},
                {"time_ms", 1e3 * times.cpp},
                {"c_time_ms", times.c ? nlohmann::json(1e3 * *times.c) : nlohmann::json()},
                {"counted_bytes", device.counters().peak_bytes},
                {"peak_rss_bytes", peak_resident_bytes()}});
    return kOk;
  }
  print("run of {}, computed in {}, on {}\n", listed_name(entry.name), o.compute,
        device.info().name);
  print("time    {:.3f} ms, median of {} ({:.1f} runs/s)\n", 1e3 * times.cpp, o.runs,
        1 / times.cpp);
  if (times.c) {
    print("in C    {:+.3f} us more per run, median of {}\n", 1e6 * (*times.c - times.cpp), o.runs);
  }
  print("memory  {} allocated on the device, {} peak resident set\n",
        bytes_text(device.counters().peak_bytes), bytes_text(peak_resident_bytes()));
  return kOk;
}

}  // namespace

void add_bench_run(CLI::App& bench, Context& context) {
  const auto [verb, o] =
      add_verb<BenchRunOptions>(bench, context, bench_run, "run", "Times an entry point",
                                "bowline bench run m.bowline --entry embed --batch 1 --seq 32");
  verb->add_option("model", o->model, "Model file")->required();
  add_entry(verb, o->entry);
  add_text(verb, "--input", o->inputs, std::string(kInputHelp) + " [random]", "NAME=VALUE");
  add_dims(verb, o->dims);
  add_compute(verb, o->compute);
  add_changes(verb, o->changes);
  add_text(verb, "--c-library", o->c_library,
           "libbowline_c.so: also times runs through the C interface of this file", "FILE");
  add_number(verb, "--runs", o->runs, "Timed runs, after 5 runs to warm up", 1, 1'000'000);
  add_device(verb, o->device);
  add_format(verb, o->format);
}

}  // namespace bowline::command
