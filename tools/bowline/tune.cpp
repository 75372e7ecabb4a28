// bowline tune: measures which kernels are fastest on a device, and stores the result.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/interrupt.h"
#include "common/report.h"
#include "common/shapes.h"
#include "common/subject.h"
#include "verb.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr size_t kMostTunedNodes = 25;

struct TuneVerbOptions : SubjectOptions {
  int rounds = 5;
  bool show = false;
  bool reset = false;
};

// A work and what tune() found.
struct Tuned {
  std::string title;
  TuneReport report;
};

// Without a model: a token and a training step of a known shape.
std::vector<SubjectOptions> built_in_works(const TuneVerbOptions& o) {
  SubjectOptions token = o;
  token.model = kGpt2Shape;
  token.compute = "bf16";
  token.entry = "decode";
  token.dims.dims = {"kv_length=256"};
  SubjectOptions step = token;
  step.entry = "loss";
  step.train = true;
  step.dims.dims = {"batch=4", "seq=256"};
  return {token, step};
}

std::string gain_text(double before, double after) {
  return fmt::format("{:.1f} percent", before <= 0 ? 0 : 100 * (before - after) / before);
}

// "3 of 7", or "table": the device's own choice.
std::string way_of(const TunedNodes& n) {
  return n.candidate < 0 ? "table" : fmt::format("{} of {}", n.candidate + 1, n.candidates);
}

void sort_by_gain(std::vector<TunedNodes>& nodes) {
  std::ranges::stable_sort(nodes, std::greater(), [](const TunedNodes& n) {
    return static_cast<double>(std::max<uint64_t>(n.count, 1)) * (n.default_ns - n.ns);
  });
}

void print_nodes(std::vector<TunedNodes> nodes) {
  sort_by_gain(nodes);
  if (nodes.empty()) {
    return;
  }
  print("\n{:>6} {:>11} {:>11}  {:<8}  {}\n", "times", "table us", "fastest us", "way", "node");
  for (size_t i = 0; i < nodes.size() && i < kMostTunedNodes; ++i) {
    const TunedNodes& n = nodes[i];
    print("{:>6} {:>11.2f} {:>11.2f}  {:<8}  {}\n",
          n.count == 0 ? std::string("-") : fmt::format("{}", n.count), n.default_ns / 1e3,
          n.ns / 1e3, way_of(n), n.key);
  }
  if (nodes.size() > kMostTunedNodes) {
    print("and {} more (-o json shows all)\n", nodes.size() - kMostTunedNodes);
  }
}

json json_of(const std::vector<TunedNodes>& nodes) {
  json out = json::array();
  for (const TunedNodes& n : nodes) {
    out.push_back({{"node", n.key},
                   {"op", n.op},
                   {"count", n.count},
                   {"candidates", n.candidates},
                   {"candidate", n.candidate < 0 ? json() : json(n.candidate)},
                   {"table_us", n.default_ns / 1e3},
                   {"us", n.ns / 1e3}});
  }
  return out;
}

json json_of(const Tuned& t) {
  const TuneReport& r = t.report;
  return {{"work", t.title},      {"table_ms", r.default_ns / 1e6},
          {"ms", r.ns / 1e6},     {"not_measured", r.not_measured},
          {"stopped", r.stopped}, {"nodes", json_of(r.nodes)}};
}

void print_result(const Tuned& t, const std::string& device) {
  const TuneReport& r = t.report;
  const auto faster =
      std::ranges::count_if(r.nodes, [](const auto& n) { return n.candidate >= 0; });
  print("{} on {}: {} of {} kinds of nodes are faster than with the table\n", t.title, device,
        faster, r.nodes.size());
  print("time in nodes: {:.3f} ms with the table, {:.3f} ms tuned; gain {}\n", r.default_ns / 1e6,
        r.ns / 1e6, gain_text(r.default_ns, r.ns));
  if (r.stopped) {
    print("stopped: only a part of the candidates is measured\n");
  }
  if (r.not_measured != 0) {
    print("{} candidates do not fit into memory and were not measured\n", r.not_measured);
  }
  print_nodes(r.nodes);
}

// What tune() measures now.
std::string what(const TuneProgress& p) {
  return p.total == 0            ? "the table"
         : p.done == p.total - 1 ? "the fastest candidates again"
                                 : fmt::format("candidate {} of {}", p.done, p.total - 2);
}

// Measures one work. Ctrl-C stops it. tune() refuses a device before the model gets values.
Result<Tuned> tune_one(const Device& device, const SubjectOptions& o, int rounds) {
  BOWLINE_TRY_ASSIGN(Model model, planned_model(o.model));
  BOWLINE_TRY_ASSIGN(Subject subject, Subject::read(o, std::move(model)));
  ProgressLine line(stderr);
  TuneOptions options;
  options.rounds = rounds;
  options.progress = [&](const TuneProgress& p) {
    line.show(fmt::format("{}: measuring {}", subject.title(), what(p)), true);
    return !interrupted();
  };
  bool is_placed = false;
  const auto make = [&]() -> Result<ProfiledRun> {
    BOWLINE_TRY(is_placed ? Status() : subject.place(device));
    is_placed = true;
    BOWLINE_TRY_ASSIGN(const Subject::Calls calls, subject.calls());
    return ProfiledRun([calls]() -> Result<std::vector<NodeTime>> {
      BOWLINE_REQUIRE_CODE(!interrupted(), Code::cancelled, "Tuning was stopped.");
      return calls.profile();
    });
  };
  Result<TuneReport> report = tune(device, make, options);
  BOWLINE_TRY(with_advice(report.status()));
  return Tuned{subject.title(), std::move(report).value()};
}

Result<int> tune_all(const TuneVerbOptions& o, const Device& device) {
  const std::vector<SubjectOptions> works =
      o.model.empty() ? built_in_works(o) : std::vector<SubjectOptions>{o};
  watch_interrupts();
  defer_interrupts();
  json results = json::array();
  std::string path;
  bool stopped = false;
  for (size_t i = 0; i < works.size() && !stopped; ++i) {
    BOWLINE_TRY_ASSIGN(const Tuned t, tune_one(device, works[i], o.rounds));
    stopped = t.report.stopped;
    path = t.report.path;
    if (o.format == "json") {
      results.push_back(json_of(t));
    } else {
      print_result(t, device.info().name);
    }
  }
  end_deferral();
  if (o.format == "json") {
    print_json({{"device", device.info().name}, {"file", path}, {"works", results}});
  } else {
    print("\nstored in {}\n", path);
  }
  return stopped ? kInterrupted : kOk;
}

Result<int> show(const TuneVerbOptions& o, const Device& device) {
  BOWLINE_TRY_ASSIGN(const TuneReport report, stored_tuning(device));
  if (o.format == "json") {
    print_json(
        {{"device", device.info().name}, {"file", report.path}, {"nodes", json_of(report.nodes)}});
    return kOk;
  }
  print("{}: {} kinds of nodes of {} are tuned\n", report.path, report.nodes.size(),
        device.info().name);
  print_nodes(report.nodes);
  return kOk;
}

Result<int> reset(const TuneVerbOptions& o, const Device& device) {
  BOWLINE_TRY_ASSIGN(const std::string removed, reset_tuning(device));
  if (o.format == "json") {
    print_json(
        {{"device", device.info().name}, {"removed", removed.empty() ? json() : json(removed)}});
  } else {
    print("{}\n", removed.empty() ? fmt::format("{} has no tuning file", device.info().name)
                                  : fmt::format("removed {}", removed));
  }
  return kOk;
}

Result<int> run(const TuneVerbOptions& o) {
  if (!o.model.empty()) {
    // Wrong flags are refused before the device is opened.
    BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
    BOWLINE_TRY_FLAGS(Subject::read(o, std::move(model)).status());
  }
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  return o.show ? show(o, device) : o.reset ? reset(o, device) : tune_all(o, device);
}

}  // namespace

void add_tune(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<TuneVerbOptions>(
      app, context, run, "tune", "Finds the fastest kernels for a model on your GPU",
      "# Without a model: a token and a training step of GPT-2 124M\n"
      "bowline tune --device vulkan:0\n"
      "# For a training step of your model, and what is stored\n"
      "bowline tune base.bowline --train --batch 8 --seq 256 \\\n"
      "    --device vulkan:0\n"
      "bowline tune --device vulkan:0 --show");
  CLI::Option* const model = verb->add_option("model", o->model, "Model file [gpt2-124m]");
  add_subject(verb, *o);
  for (const char* flag :
       {"--entry", "--train", "--input", "--step", "--dim", "--batch", "--seq", "--compute"}) {
    verb->get_option(flag)->needs(model);
  }
  CLI::Option* const rounds =
      add_number(verb, "--rounds", o->rounds, "Measured runs per candidate", 1, 1000);
  CLI::Option* const show =
      verb->add_flag("--show", o->show, "Print the stored results, and measure nothing");
  CLI::Option* const reset =
      verb->add_flag("--reset", o->reset, "Remove the stored results, and measure nothing");
  show->excludes(reset)->excludes(model)->excludes(rounds);
  reset->excludes(model)->excludes(rounds);
  add_format(verb, o->format);
}

}  // namespace bowline::command
