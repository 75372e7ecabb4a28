#include "bench/run.h"

#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "bench/floor.h"
#include "common/inputs.h"
#include "common/report.h"
#include "verb.h"

namespace bowline::command {
namespace {

constexpr int kWarmupRuns = 5;

}  // namespace

Result<int> bench_run(const BenchRunOptions& o) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
  BOWLINE_TRY(change(model, o.changes));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(const EntryPointInfo entry, entry_point(info, o.entry));
  BOWLINE_TRY_ASSIGN(std::vector<BoundDim> dims, dims_of(o.dims, info, &entry));
  BOWLINE_TRY_ASSIGN(Inputs inputs, make_inputs(entry, o.inputs, std::move(dims), "random:1"));
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device, o.threads, o.memory_budget));
  BOWLINE_TRY(model.to(device));
  const BoundEntryPoint bound{entry.name, inputs.dims, compute_of(o.compute)};
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, std::span(&bound, 1)));
  const std::vector<Tensor> tensors = inputs.tensors();
  BOWLINE_TRY_ASSIGN(const double seconds,
                     median_seconds(o.runs, kWarmupRuns, [&] { return session.run(tensors, {}); }));
  if (o.format == "json") {
    print_json({{"device", device.info().name},
                {"entry", entry.name},
                {"compute", o.compute},
                {"runs", o.runs},
                {"time_ms", 1e3 * seconds},
                {"counted_bytes", device.counters().peak_bytes},
                {"peak_rss_bytes", peak_resident_bytes()}});
    return kOk;
  }
  print("run of {}, computed in {}, on {}\n", listed_name(entry.name), o.compute,
        device.info().name);
  print("time    {:.3f} ms, median of {} ({:.1f} runs/s)\n", 1e3 * seconds, o.runs, 1 / seconds);
  print("memory  {} allocated on the device, {} peak resident set\n",
        bytes_text(device.counters().peak_bytes), bytes_text(peak_resident_bytes()));
  return kOk;
}

}  // namespace bowline::command
