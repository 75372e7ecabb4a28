// bowline eval: evaluates a model: perplexity of text, or classification accuracy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "common/build.h"
#include "common/data_flags.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/memory_curve.h"
#include "common/numbers.h"
#include "common/page.h"
#include "common/print.h"
#include "common/sha256.h"
#include "common/trained_model.h"
#include "eval/page.h"
#include "tasks/task.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct EvalOptions : DataOptions, ModelOptions {
  bool force = false;
  std::string report;
  Changes changes;
};

// Fills in what the --report page shows about the model and its plan.
Status describe(const EvalOptions& o, const Model& model, const Session& session,
                const Device& device, const Task& task, Evaluated& page) {
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, session.describe());
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(const std::string sha256, sha256_of_file(o.model));
  page.model = o.model;
  page.unit = task.info().unit;
  page.sizes = task.info().sizes;
  page.sources = {{"Model", o.model},
                  {"SHA-256 of the model file", sha256},
                  {"Data", fmt::format("{}: {}", o.data, task.info().held_out)}};
  for (const std::string& adapter : o.changes.adapters) {
    page.sources.emplace_back("Adapter", adapter);
  }
  if (!o.changes.encoding.empty()) {
    page.sources.emplace_back("Quantized as", o.changes.encoding);
  }
  page.sources.emplace_back("Device",
                            fmt::format("{}, {}", device.info().name, device.info().description));
  page.sources.emplace_back("Built as", build_text());
  page.memory = memory_html("activations", "one batch", session.memory(), info,
                            memory_curve(plan, {plan.segments[0].name}));
  return {};
}

// `page` is null without --report.
Result<Measure> evaluate(const EvalOptions& o, Model& model, const Device& device, Task& task,
                         Evaluated* page) {
  BOWLINE_TRY(change(model, o.changes));
  BOWLINE_TRY(model.to(device));
  std::vector<BoundEntryPoint> plans;
  for (const std::vector<BoundDim>& dims : task.info().dims) {
    plans.push_back({task.info().evaluated, dims});
  }
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, plans));
  if (page != nullptr) {
    BOWLINE_TRY(describe(o, model, session, device, task, *page));
  }
  uint64_t batches = 0;
  return task.evaluate(
      [&](std::span<const Tensor> inputs, std::span<const Tensor> outputs) -> Status {
        BOWLINE_TRY(session.run(task.info().evaluated, inputs, outputs));
        if (page != nullptr && task.info().evaluated == "loss") {
          const float loss = *static_cast<const float*>(outputs[0].data);
          page->losses.add(++batches, task.shown(static_cast<double>(loss)));
        }
        return {};
      });
}

// "macro_f1" as "macro F1".
std::string spoken(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name == "macro f1"    ? "macro F1"
         : name == "mrr at 10" ? "MRR at 10"
         : name == "f1"        ? "F1"
                               : name;
}

void print_confusion(const Confusion& c) {
  const size_t classes = c.labels.size();
  print("\nconfusion matrix; row: label in the data, column: predicted label, same order\n");
  for (size_t row = 0; row < classes; ++row) {
    std::string counts;
    for (size_t column = 0; column < classes; ++column) {
      counts += fmt::format("{:>7}", c.counts[row * classes + column]);
    }
    print("{}  {}\n", counts, listed_name(c.labels[row]));
  }
}

void print_text(const Measure& m, const Task& task) {
  size_t width = std::string_view("perplexity ").size();
  for (const auto& [name, value] : m.more) {
    width = std::max(width, name.size());
  }
  print("{:<{}} {:.4f} {}\n", "loss", width, m.loss, task.info().unit);
  for (const auto& [name, value] : m.more) {
    print("{:<{}} {:.4f}\n", spoken(name), width, value);
  }
  if (m.perplexity) {
    const std::string unit = task.info().unit;
    print("{:<{}} {:.4f}{}\n", "perplexity", width, *m.perplexity,
          unit.substr(unit.rfind(" per ")));
  }
  if (m.confusion) {
    print_confusion(*m.confusion);
  }
}

nlohmann::json json_of(const Confusion& c) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t row = 0; row < c.labels.size(); ++row) {
    const auto begin = c.counts.begin() + static_cast<std::ptrdiff_t>(row * c.labels.size());
    rows.push_back(
        std::vector<uint64_t>(begin, begin + static_cast<std::ptrdiff_t>(c.labels.size())));
  }
  return rows;
}

void print_measure_json(const Measure& m, const Task& task, const Device& device) {
  nlohmann::json out = json_of(m, task.info().unit, task.info().sizes);
  out["device"] = device.info().name;
  if (m.confusion) {
    out["confusion"] = json_of(*m.confusion);
  }
  print_json(out);
}

Result<int> run(const EvalOptions& o) {
  if (o.eval_stride > o.seq) {
    return fail(kUsage, fmt::format("--stride {} is above --seq {}.", o.eval_stride, o.seq));
  }
  BOWLINE_TRY_FLAGS(o.uses.check("--force", !o.report.empty(), "--report is not given"));
  Evaluated page;
  if (!o.report.empty()) {
    BOWLINE_TRY_FLAGS(check_page("--report", o.report, o.force));
  }
  BOWLINE_TRY_ASSIGN(Model model, open_trained_model(o.model));
  BOWLINE_TRY_FLAGS(check_data_flags(model, o));
  BOWLINE_TRY_ASSIGN(const std::unique_ptr<Task> task,
                     make_task(model, o.model, o, Purpose::evaluation));
  BOWLINE_TRY_ASSIGN(const Device device, open_computing_device(o.device));
  BOWLINE_TRY_ASSIGN(const Measure m,
                     evaluate(o, model, device, *task, o.report.empty() ? nullptr : &page));
  if (!o.report.empty()) {
    page.measure = m;
    BOWLINE_TRY(write_text(o.report, eval_page(page)));
  }
  if (o.format == "json") {
    print_measure_json(m, *task, device);
  } else {
    for (const std::string& note : task->info().notes) {
      print("{}\n", note);
    }
    print_text(m, *task);
  }
  BOWLINE_REQUIRE_CODE(std::isfinite(m.loss), Code::non_finite,
                       "The loss of model \"{}\" on text \"{}\" is not finite.", o.model, o.data);
  return kOk;
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<EvalOptions>(
      app, context, run, "eval", "Evaluates a model: perplexity, accuracy, or retrieval of texts",
      "bowline eval tuned.bowline --data notes.txt\n"
      "# A model with an adapter\n"
      "bowline eval lm.bowline --adapter adapter.bowline --data chats.jsonl");
  verb->add_option("model", o->model, "Model file with the entry point 'loss'")->required();
  add_data(verb, *o);
  add_windows(verb, *o);
  add_text(verb, "--report", o->report, "Write an HTML page with the loss of each batch", "FILE");
  verb->add_flag("--force", o->force, "Replace an existing --report");
  add_changes(verb, o->changes);
  add_device(verb, o->device);
  add_format(verb, o->format);
  const AdvancedFlags advanced(verb);
  add_number(verb, "--stride", o->eval_stride, "Stride of the windows, in tokens [--seq]", 0,
             1 << 20);
  add_number(verb, "--batches", o->eval_batches, "Evaluate at most this many batches [all]", 0,
             kMostSteps);
  o->uses.add({"--stride"}, kPlainText);
}

}  // namespace bowline::command
