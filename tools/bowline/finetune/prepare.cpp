#include <fmt/format.h>

#include "base/pattern.h"
#include "base/status.h"
#include "common/build.h"
#include "common/find.h"
#include "common/flags.h"
#include "common/memory_curve.h"
#include "common/print.h"
#include "common/sha256.h"
#include "common/strings.h"
#include "common/trained_model.h"
#include "finetune/run_state.h"

namespace bowline::command {
namespace {

// Returns the shortest decimal of a float. Settings store nine digits.
std::string shortest(const std::string& text) {
  const auto value = number_in<float>(text);
  const bool fraction = text.find_first_of(".e") != std::string::npos;
  return fraction && value ? fmt::format("{}", *value) : text;
}

// Errors  bad_argument: a pattern matches nothing.
Status freeze(Model& model, const std::vector<std::string>& patterns) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  for (const std::string& pattern : patterns) {
    BOWLINE_TRY_ASSIGN(const std::vector<std::string> names, alternatives(pattern));
    bool found = false;
    for (const ParameterInfo& parameter : info.parameters) {
      if (matches_any(names, parameter.name)) {
        found = true;
        BOWLINE_TRY(parameter.trainable ? model.freeze_storage(parameter.name) : Status());
      }
    }
    BOWLINE_REQUIRE(found, "--freeze \"{}\" matches no parameter; 'bowline inspect' lists them.",
                    pattern);
  }
  return {};
}

// True if a node draws random values.
bool draws(const std::vector<NodeInfo>& nodes) {
  return std::ranges::any_of(
      nodes, [](const NodeInfo& node) { return node.op == "Dropout" || draws(node.body); });
}

}  // namespace

Status Run::prepare() {
  const auto place = [&]() -> Status {
    BOWLINE_TRY(open_device());
    BOWLINE_TRY(open_data());
    return place_model();
  };
  BOWLINE_TRY(processes_.agree(place()));
  BOWLINE_TRY(make_trainer());
  BOWLINE_TRY(processes_.agree(o_.dry_run ? Status() : store_.open()));
  BOWLINE_TRY(processes_.agree(resume()));
  first_step_ = trainer_->steps();
  return {};
}

Status Run::open_model() {
  BOWLINE_TRY_ASSIGN(model_, open_trained_model(o_.model));
  return {};
}

// Errors  bad_argument: a flag has no effect on the model and the data.
Status Run::check_flags() const {
  BOWLINE_TRY(check_data_flags(*model_, o_));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model_->describe());
  const EntryPointInfo* const loss = find_named(info.entry_points, "loss");
  return o_.uses.check("--seed", !o_.in_order || o_.lora.rank != 0 || draws(loss->nodes),
                       "--in-order shows the rows as they stand, and the model has no dropout");
}

Status Run::open_data() {
  BOWLINE_TRY_ASSIGN(task_, make_task(*model_, o_.model, o_, Purpose::training));
  if (o_.epochs > 0) {
    o_.steps = steps_of(o_.epochs, o_, *task_);
  }
  config_ = run_config(o_, *task_);
  held_ = HeldOut(task_->info().evaluation_key);
  BOWLINE_TRY_ASSIGN(run_id_, run_id(config_, *model_));
  return {};
}

Status Run::open_device() {
  DeviceFlags flags = o_.device;
  flags.name = (o_.dry_run ? "planning:" : "") + processes_.device(flags.name);
  BOWLINE_TRY_ASSIGN(device_, open_computing_device(flags));
  // One process on a GPU would copy its gradients to the host only for this order.
  const bool by_micro_batch =
      !o_.fast_reduce && (processes_.group() != nullptr || device_->info().name.ends_with("cpu"));
  o_.train.gradient_sum = by_micro_batch ? GradientSum::by_micro_batch : GradientSum::in_place;
  return {};
}

Status Run::place_model() {
  if (o_.dry_run) {
    BOWLINE_TRY_ASSIGN(model_, model_->skeleton());
  }
  BOWLINE_TRY(task_->prepare(*model_));
  BOWLINE_TRY(freeze(*model_, o_.freeze));
  if (o_.lora.rank == 0) {
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model_->describe());
    BOWLINE_TRY(require_weights_to_train(info));
  } else {
    BOWLINE_TRY(quantize_all(*model_, o_.encoding));
    BOWLINE_TRY_ASSIGN(const AdapterReport report,
                       add_adapter(*model_, kAdapter, adapter_options(o_)));
    BOWLINE_TRY(warn_of_the_head(report));
  }
  BOWLINE_TRY_ASSIGN(const ModelInfo trained, model_->describe());
  trained_ = trained_values(trained);
  return model_->to(*device_);
}

Status Run::make_trainer() {
  BOWLINE_TRY_ASSIGN(trainer_, Trainer::create(*model_, *device_, train_options(o_, *task_)));
  if (task_->info().evaluated != "loss") {
    std::vector<BoundEntryPoint> plans;
    for (const std::vector<BoundDim>& dims : task_->info().dims) {
      plans.push_back({task_->info().evaluated, dims, compute_of(o_.compute)});
    }
    BOWLINE_TRY_ASSIGN(evaluation_, Session::create(*model_, *device_, plans));
  }
  return {};
}

// Warns if a classification head is not trained: after an import it may be random.
Status Run::warn_of_the_head(const AdapterReport& report) const {
  const auto is_head = [](std::string_view name) { return name.starts_with("classifier."); };
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model_->describe());
  if (std::ranges::any_of(info.parameters, is_head, &ParameterInfo::name) &&
      std::ranges::none_of(report.targets, is_head)) {
    BOWLINE_TRY_ASSIGN(const std::vector<std::string> targets, alternatives(o_.lora.target));
    print(
        stderr,
        "bowline: --lora-target \"{}\" does not train the classification head, which is random if "
        "it is new.\n- --lora-target \"{{{},classifier.*}}\" trains it, too.\n",
        o_.lora.target, fmt::join(targets, ","));
  }
  return {};
}

Status Run::resume() {
  if (o_.resume == "auto") {
    BOWLINE_TRY(resume_auto());
  } else if (o_.resume != "none") {
    BOWLINE_TRY(resume_from(o_.resume));
  } else {
    const std::vector<CheckpointFile> files = list_checkpoints(o_.checkpoint);
    BOWLINE_REQUIRE(files.empty(),
                    "Folder \"{}\" holds a checkpoint of an earlier run (step {}). --resume auto "
                    "continues it.",
                    o_.checkpoint, files.empty() ? 0 : files.front().step);
  }
  return store_.adopt(store_.last(), config_);
}

Status Run::resume_auto() {
  Status failed;
  for (const CheckpointFile& file : list_checkpoints(o_.checkpoint)) {
    failed = resume_from(file.path);
    if (failed.ok()) {
      return {};
    }
    if (is_whole(file.path)) {
      return failed;  // intact, but from another run
    }
    print(stderr, "bowline: {}\n- This checkpoint is skipped.\n", Lines{failed.message()});
  }
  return std::move(failed).at("None of the checkpoints can be used.");
}

Status Run::resume_from(const std::string& path) {
  BOWLINE_TRY_ASSIGN(SavedRun saved, read_run(path));
  BOWLINE_TRY(check_same_run(path, saved.config, config_));
  const Result<Progress> resumed = trainer_->resume(path, {.extend = o_.extend});
  if (!resumed.ok()) {
    // For a damaged file, only the damage is reported.
    BOWLINE_TRY(is_whole(path) ? explain_steps(path, saved, o_) : Status());
    return Status(resumed.status()).as(Code::bad_file);
  }
  const Progress& p = resumed.value();
  BOWLINE_TRY(check_steps(path, p.step, o_.steps));
  samples_ = p.data_cursor;
  store_.set_saved(samples_, path);
  print(out_, "resumed at step {} from {}\n", p.step, path);
  const std::string device = find_setting(saved.config, kDevice).value_or(device_->info().name);
  if (device != device_->info().name) {
    print(out_, "the run was on device {} and continues on {}: results may differ by rounding\n",
          device, device_->info().name);
  }
  if (p.step == o_.steps) {
    print(out_, "the run is finished; a larger --steps with --extend continues it\n");
  }
  if (!held_.read_from(saved.config)) {
    print(out_, "the held-out data or its windows changed: held-out losses start again\n");
    held_ = HeldOut(task_->info().evaluation_key);
  }
  saved_config_ = std::move(saved.config);
  return {};
}

Status Run::open_outputs() {
  BOWLINE_TRY(store_.probe(*model_, saved_config_, first_step_));
  if (!o_.log.empty()) {
    BOWLINE_TRY_ASSIGN(log_, LossLog::open({o_.log, run_id_, task_->info().unit, first_step_,
                                            o_.resume != "none", o_.force}));
  }
  if (!o_.tensorboard.empty()) {
    BOWLINE_TRY_ASSIGN(events_, EventFile::create(o_.tensorboard, first_step_));
  }
  if (!o_.report.empty()) {
    BOWLINE_TRY_ASSIGN(
        page_, RunPage::open({o_.report, run_id_, first_step_, o_.resume != "none", o_.force}));
    BOWLINE_TRY(describe_page());
    BOWLINE_TRY(page_.write(now()));
  }
  return {};
}

Status Run::describe_page() {
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, trainer_->describe());
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model_->describe());
  BOWLINE_TRY_ASSIGN(const std::string sha256, sha256_of_file(o_.model));
  const MemoryReport report = memory();
  RunPage::Description d;
  d.model = o_.model;
  d.unit = task_->info().unit;
  d.steps = o_.steps;
  for (const auto& [name, value] : config_) {
    d.settings.emplace_back(name, shortest(value));
  }
  d.settings.emplace_back("eval-every", std::to_string(o_.eval_every));
  d.settings.emplace_back("keep", o_.keep);
  d.settings.emplace_back("on-nonfinite", o_.on_nonfinite);
  d.sources = {{"Model", o_.model},
               {"SHA-256 of the model file", sha256},
               {"Data", o_.data},
               {"Held out", task_->info().held_out},
               {"Run", run_id_},
               {"Device", fmt::format("{}, {}", device_->info().name, device_->info().description)},
               {"Built as", build_text()}};
  d.memory = memory_html("activations", "one batch and the update", report, info,
                         memory_curve(plan, {"accumulate", "update"}));
  d.data = {{"settings", d.settings}, {"sources", d.sources}, {"arena_bytes", report.arena_bytes}};
  page_.describe(std::move(d));
  return {};
}

}  // namespace bowline::command
