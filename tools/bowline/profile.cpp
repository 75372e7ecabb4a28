// bowline profile: measures the time of each node of a run or of a training step.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "common/files.h"
#include "common/find.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/inputs.h"
#include "common/timing.h"
#include "verb.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr int kWarmup = 2;
constexpr size_t kMostNodes = 25;

struct ProfileOptions : ModelOptions {
  std::string entry;
  std::string trace;
  std::string compute = "f32";
  std::vector<std::string> inputs;
  std::vector<std::string> steps_given;
  DimFlags dims;
  int steps = 5;
  bool train = false;
  bool force = false;
};

// The call to profile, without and with clocks.
struct Subject {
  std::function<Status()> run;
  std::function<Result<std::vector<NodeTime>>()> profile;
};

struct Measured {
  double step_ns = 0;     // median without clocks
  double clocked_ns = 0;  // mean of the steps with clocks
  std::vector<std::vector<NodeTime>> steps;
  std::vector<NodeTime> mean;

  double nodes_ns() const {
    double sum = 0;
    for (const NodeTime& node : mean) {
      sum += node.ns;
    }
    return sum;
  }
};

Result<Measured> measure(const Subject& subject, int steps) {
  Measured m;
  BOWLINE_TRY_ASSIGN(const double seconds, median_seconds(steps, kWarmup, subject.run));
  m.step_ns = 1e9 * seconds;
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point start = Clock::now();
    BOWLINE_TRY_ASSIGN(std::vector<NodeTime> times, subject.profile());
    m.clocked_ns += 1e9 * seconds_since(start) / steps;
    m.steps.push_back(std::move(times));
  }
  m.mean = m.steps[0];
  for (size_t node = 0; node < m.mean.size(); ++node) {
    double sum = 0;
    for (const std::vector<NodeTime>& step : m.steps) {
      sum += step[node].ns;
    }
    m.mean[node].ns = sum / static_cast<double>(m.steps.size());
  }
  return m;
}

std::vector<NodeTime> by_operator(const std::vector<NodeTime>& nodes) {
  std::map<std::string, NodeTime> sums;
  for (const NodeTime& node : nodes) {
    NodeTime& sum = sums[node.op];
    sum.op = node.op;
    sum.count += node.count;
    sum.ns += node.ns;
  }
  std::vector<NodeTime> out;
  for (auto& [op, sum] : sums) {
    out.push_back(std::move(sum));
  }
  return out;
}

void sort_by_time(std::vector<NodeTime>& nodes) {
  std::ranges::stable_sort(nodes, std::greater(), &NodeTime::ns);
}

// Writes Chrome's trace format ("Trace Event Format", Google, 2016): complete events in
// microseconds, one after the other.
Status write_trace(const std::string& path, const Measured& m) {
  json events = json::array();
  double at = 0;
  for (size_t step = 0; step < m.steps.size(); ++step) {
    for (const NodeTime& node : m.steps[step]) {
      events.push_back({{"name", node.name},
                        {"cat", node.part},
                        {"ph", "X"},
                        {"ts", at / 1e3},
                        {"dur", node.ns / 1e3},
                        {"pid", 1},
                        {"tid", 1},
                        {"args", {{"op", node.op}, {"count", node.count}, {"step", step}}}});
      at += node.ns;
    }
  }
  const std::string text = json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump(
      -1, ' ', true, json::error_handler_t::replace);
  return write_text(path, text);
}

json json_of(const std::vector<NodeTime>& nodes) {
  json out = json::array();
  for (const NodeTime& node : nodes) {
    out.push_back({{"part", node.part},
                   {"name", node.name},
                   {"op", node.op},
                   {"count", node.count},
                   {"ms", node.ns / 1e6}});
  }
  return out;
}

class Profiling {
 public:
  explicit Profiling(const ProfileOptions& options) : o_(options) {}

  Result<int> run() {
    BOWLINE_TRY_ASSIGN(Model model, open_to_measure(o_.model));
    const std::string entry = o_.train && o_.entry.empty() ? "loss" : o_.entry;
    Result<Inputs> inputs = read_request(model, entry);
    if (!inputs.ok()) {
      return fail_flags(inputs.status());
    }
    BOWLINE_TRY_ASSIGN(const Device device, open_device(o_.device));
    BOWLINE_TRY(fill_caches(model, inputs.value()));
    BOWLINE_TRY(model.to(device));
    BOWLINE_TRY_ASSIGN(const Measured m, o_.train ? train(model, device, inputs.value())
                                                  : forward(model, device, inputs.value()));
    if (!o_.trace.empty()) {
      BOWLINE_TRY(write_trace(o_.trace, m));
    }
    print_result(device.info().name, m);
    return kOk;
  }

 private:
  Result<Inputs> read_request(const Model& model, const std::string& entry) {
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
    BOWLINE_TRY_ASSIGN(entry_, entry_point(info, entry));
    BOWLINE_TRY_ASSIGN(std::vector<BoundDim> dims, dims_of(o_.dims, info, &entry_));
    BOWLINE_TRY(o_.trace.empty() ? Status() : check_new(o_.trace, o_.force));
    BOWLINE_TRY_ASSIGN(steps_, steps_of(o_.steps_given));
    return make_inputs(entry_, o_.inputs, std::move(dims), "random:1");
  }

  // Prepares the caches of a generating entry point as if they were full. They get "kv_length"
  // rows, and the run writes the last "rows" rows, or one row. The names are those of
  // text::Generator.
  Status fill_caches(Model& model, const Inputs& inputs) {
    const auto length = [&](std::string_view dim, int64_t otherwise) {
      const BoundDim* const found = find_named(inputs.lengths, dim);
      return found == nullptr ? otherwise : found->value;
    };
    BOWLINE_TRY_ASSIGN(const std::string caches, written_caches(model));
    const int64_t context = length("kv_length", 0);
    if (caches.empty() || context == 0) {
      return {};
    }
    BOWLINE_TRY(model.resize(caches, context).status());
    if (find_named(steps_, "position") == nullptr) {
      steps_.emplace_back("position", context - std::min(context, length("rows", 1)));
    }
    return {};
  }

  // Returns a pattern for the caches that the entry point writes.
  Result<std::string> written_caches(const Model& model) const {
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
    std::vector<std::string> names;
    for (const ParameterInfo& p : info.parameters) {
      const bool written = std::ranges::find(entry_.updates, p.tie) != entry_.updates.end();
      if (written && info.storages[p.tie].role == StorageRole::kv_cache) {
        names.push_back(p.name);
      }
    }
    return names.empty() ? std::string() : fmt::format("{{{}}}", fmt::join(names, ","));
  }

  Result<Measured> measure_with(const Subject& subject) const {
    Result<Measured> m = measure(subject, o_.steps);
    if (m.ok() || m.status().code() != Code::index_out_of_range) {
      return m;
    }
    return std::move(m).status().at(
        "Integer inputs that are not given are random from 0 to 127; --input NAME=zeros is always "
        "in range.");
  }

  Result<Measured> forward(const Model& model, const Device& device, Inputs& inputs) const {
    const BoundEntryPoint entry{entry_.name, inputs.dims, compute_of(o_.compute)};
    BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, std::span(&entry, 1)));
    const std::vector<Tensor> tensors = inputs.tensors();
    return measure_with({[&] { return session.run(tensors, {}, steps_); },
                         [&] { return session.profile(tensors, steps_); }});
  }

  Result<Measured> train(Model& model, const Device& device, Inputs& inputs) const {
    TrainOptions options;
    options.entry_point = entry_.name;
    options.dims = inputs.dims;
    options.precision.compute_dtype = compute_of(o_.compute);
    BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
    const std::vector<Tensor> tensors = inputs.tensors();
    return measure_with({[&] { return trainer.micro_step(tensors).status(); },
                         [&] { return trainer.profile(tensors); }});
  }

  void print_result(const std::string& device, const Measured& m) const {
    const double share = 100 * m.nodes_ns() / m.clocked_ns;
    if (o_.format == "json") {
      print_json({{"device", device},
                  {"entry", entry_.name},
                  {"train", o_.train},
                  {"compute", o_.compute},
                  {"steps", o_.steps},
                  {"step_ms", m.step_ns / 1e6},
                  {"clocked_ms", m.clocked_ns / 1e6},
                  {"nodes_ms", m.nodes_ns() / 1e6},
                  {"percent_on_nodes", share},
                  {"nodes", json_of(m.mean)}});
      return;
    }
    print(
        "{} of {} on {}: {:.3f} ms without clocks (median of {}), {:.3f} ms with clocks, {:.1f} "
        "percent of it in nodes\n",
        o_.train ? "training step" : "run", listed_name(entry_.name), device, m.step_ns / 1e6,
        o_.steps, m.clocked_ns / 1e6, share);
    print_rows("operator", by_operator(m.mean), m.nodes_ns(), SIZE_MAX);
    print_rows("node", m.mean, m.nodes_ns(), kMostNodes);
  }

  static void print_rows(const char* what, std::vector<NodeTime> rows, double sum, size_t most) {
    sort_by_time(rows);
    print("\n{:>8} {:>10} {:>6}  {}\n", "percent", "ms", "times", what);
    for (size_t i = 0; i < rows.size() && i < most; ++i) {
      const NodeTime& row = rows[i];
      print("{:>8.1f} {:>10.4f} {:>6}  {}\n", 100 * row.ns / sum, row.ns / 1e6, row.count,
            row.name.empty() ? row.op : fmt::format("{}: {}", row.part, row.name));
    }
    if (rows.size() > most) {
      print("and {} more (-o json shows all)\n", rows.size() - most);
    }
  }

  const ProfileOptions& o_;
  EntryPointInfo entry_;
  std::vector<StepScalar> steps_;
};

Result<int> run(const ProfileOptions& o) { return Profiling(o).run(); }

}  // namespace

void add_profile(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<ProfileOptions>(
      app, context, run, "profile", "Measures the time of each operator in a run or training step",
      "# A training step, with a timeline for the browser\n"
      "bowline profile base.bowline --train --batch 8 --seq 256 \\\n"
      "    --trace trace.json\n"
      "# A run of an entry point, with random inputs\n"
      "bowline profile base.bowline --entry forward --batch 8 --seq 256");
  verb->add_option("model", o->model, "Model file")->required();
  add_entry(verb, o->entry);
  CLI::Option* train = verb->add_flag("--train", o->train, "Profile a training step with AdamW");
  add_text(verb, "--input", o->inputs, std::string(kInputHelp) + " [random]", "NAME=VALUE");
  add_text(verb, "--step", o->steps_given, kStepHelp, "NAME=N")->group(kAdvanced)->excludes(train);
  add_dims(verb, o->dims);
  add_compute(verb, o->compute);
  add_device(verb, o->device.name);
  add_memory_budget(verb, o->device.memory_budget);
  add_number(verb, "--steps", o->steps, "Number of measured runs or training steps", 1, 1000);
  CLI::Option* trace = add_text(verb, "--trace", o->trace,
                                "Timeline for chrome://tracing or ui.perfetto.dev", "FILE");
  verb->add_flag("--force", o->force, "Replace an existing --trace")->needs(trace);
  add_format(verb, o->format);
}

}  // namespace bowline::command
