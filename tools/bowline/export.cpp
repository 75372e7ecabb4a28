// bowline export: a model file without what a training left in it.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/flags.h"
#include "common/report.h"
#include "core/status.h"
#include "graph/model_state.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct ExportOptions {
  std::string model;
  std::string out;
  std::string format = "text";
  bool strip = false;
  bool force = false;
};

// Moments, gradients, and the record of the run. Their rows stay as empty ones: tie indices are names.
void strip(graph::ModelState& state) {
  for (params::Storage& s : state.table.storages) {
    if (s.role == params::Role::moment || s.role == params::Role::gradient) {
      s.empty = true;
      s.home = {};
    }
  }
  state.training.reset();
}

Result<int> run(const ExportOptions& o) {
  if (const Status s = check_new(o.out, o.force); !s.ok()) {
    return fail_flags(s);
  }
  BOWLINE_ASSIGN(const Model model, open_model(o.model));
  strip(*model.state());
  BOWLINE_TRY(model.save(o.out));
  const uint64_t before = std::filesystem::file_size(o.model);
  const uint64_t after = std::filesystem::file_size(o.out);
  if (o.format == "json") {
    print_json({{"file", o.model}, {"out", o.out}, {"bytes_before", before}, {"bytes", after}});
  } else {
    print("{}: {}, before {}\n", o.out, bytes_text(after), bytes_text(before));
  }
  return static_cast<int>(kOk);
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(app, "export", "Writes a model without what a training left in it",
                            "bowline export run/step-00000300.bowline --strip --out tuned.bowline");
  auto o = std::make_shared<ExportOptions>();
  verb->add_option("model", o->model, "Model file or checkpoint")->required();
  verb->add_flag("--strip", o->strip, "Leave out moments, gradients and the record of the run")
      ->required();
  verb->add_option("--out", o->out, "Where the model is written")->required();
  verb->add_flag("--force", o->force, "Replace a file that is there");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return run(*o); });
}

}  // namespace bowline::command
