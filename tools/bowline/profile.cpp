// bowline profile: measures the time of each node of a run or of a training step.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "common/files.h"
#include "common/flags.h"
#include "common/subject.h"
#include "common/timing.h"
#include "verb.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr int kWarmup = 2;
constexpr size_t kMostNodes = 25;

struct ProfileOptions : SubjectOptions {
  std::string trace;
  int steps = 5;
  bool force = false;
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

Result<Measured> measure(const Subject::Calls& calls, int steps) {
  Measured m;
  BOWLINE_TRY_ASSIGN(const double seconds, median_seconds(steps, kWarmup, calls.run));
  m.step_ns = 1e9 * seconds;
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point start = Clock::now();
    BOWLINE_TRY_ASSIGN(std::vector<NodeTime> times, calls.profile());
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

void print_rows(const char* what, std::vector<NodeTime> rows, double sum, size_t most) {
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

void print_result(const ProfileOptions& o, const Subject& subject, const std::string& device,
                  const Measured& m) {
  const double share = 100 * m.nodes_ns() / m.clocked_ns;
  if (o.format == "json") {
    print_json({{"device", device},
                {"entry", subject.entry()},
                {"train", o.train},
                {"compute", o.compute},
                {"steps", o.steps},
                {"step_ms", m.step_ns / 1e6},
                {"clocked_ms", m.clocked_ns / 1e6},
                {"nodes_ms", m.nodes_ns() / 1e6},
                {"percent_on_nodes", share},
                {"nodes", json_of(m.mean)}});
    return;
  }
  print(
      "{} on {}: {:.3f} ms without clocks (median of {}), {:.3f} ms with clocks, {:.1f} percent of "
      "it in nodes\n",
      subject.title(), device, m.step_ns / 1e6, o.steps, m.clocked_ns / 1e6, share);
  print_rows("operator", by_operator(m.mean), m.nodes_ns(), SIZE_MAX);
  print_rows("node", m.mean, m.nodes_ns(), kMostNodes);
}

Result<int> run(const ProfileOptions& o) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
  BOWLINE_TRY_FLAGS(o.trace.empty() ? Status() : check_new(o.trace, o.force));
  Result<Subject> subject = Subject::read(o, std::move(model));
  BOWLINE_TRY_FLAGS(Status(subject.status()));
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY(subject.value().place(device));
  BOWLINE_TRY_ASSIGN(const Subject::Calls calls, subject.value().calls());
  const Result<Measured> measured = measure(calls, o.steps);
  BOWLINE_TRY(with_advice(measured.status()));
  const Measured& m = measured.value();
  if (!o.trace.empty()) {
    BOWLINE_TRY(write_trace(o.trace, m));
  }
  print_result(o, subject.value(), device.info().name, m);
  return kOk;
}

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
  add_subject(verb, *o);
  add_number(verb, "--steps", o->steps, "Number of measured runs or training steps", 1, 1000);
  CLI::Option* trace = add_text(verb, "--trace", o->trace,
                                "Timeline for chrome://tracing or ui.perfetto.dev", "FILE");
  verb->add_flag("--force", o->force, "Replace an existing --trace")->needs(trace);
  add_format(verb, o->format);
}

}  // namespace bowline::command
