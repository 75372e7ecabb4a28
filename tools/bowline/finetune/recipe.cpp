#include "finetune/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "base/words.h"
#include "common/find.h"
#include "common/flags.h"
#include "common/hash.h"
#include "finetune/optimizer_flags.h"

namespace bowline::command {
namespace {

constexpr std::string_view kSteps = "steps";
constexpr std::string_view kData = "data";

// Returns null if the optimizer does not have the setting.
const OptimizerSetting* find_setting_of(const FinetuneOptions& o, std::string_view name) {
  return find_named(find_named(optimizers(), o.train.optimizer.name)->settings, name);
}

// The value of a setting, or `none` if the optimizer does not have it.
float value_of(const FinetuneOptions& o, std::string_view name, float none) {
  const auto given = o.train.optimizer.settings.find(name);
  const OptimizerSetting* const setting = find_setting_of(o, name);
  return given != o.train.optimizer.settings.end() ? given->second
         : setting != nullptr                      ? setting->default_value
                                                   : none;
}

std::string number_text(float number) { return fmt::format("{:.9g}", number); }

float lora_alpha(const FinetuneOptions& o) {
  return o.lora_scale != 0 ? o.lora_scale * static_cast<float>(o.lora.rank) : o.lora.alpha;
}

}  // namespace

AdapterOptions adapter_options(const FinetuneOptions& o) {
  AdapterOptions a = o.lora;
  a.alpha = lora_alpha(o);
  a.seed = o.seed;
  return a;
}

TrainOptions train_options(const FinetuneOptions& o, const Task& task) {
  TrainOptions t = o.train;
  t.entry_point = task.info().trained;
  const std::vector<std::vector<BoundDim>>& dims = task.info().dims;
  t.dims = dims.front();
  t.more_dims.assign(dims.begin() + 1, dims.end());
  t.schedule.kind = o.schedule == "constant" ? Schedule::Kind::constant
                    : o.schedule == "linear" ? Schedule::Kind::linear
                                             : Schedule::Kind::cosine;
  // The schedule needs at least one step, also if the run has none.
  t.schedule.total_steps = std::max<uint64_t>(o.steps, 1);
  t.precision.compute_dtype = compute_of(o.compute);
  t.seed = o.seed;
  if (o.head_learning_rate >= 0) {
    t.groups = {{"classifier.*", o.head_learning_rate / o.train.schedule.learning_rate, {}}};
  }
  t.on_nonfinite = static_cast<OnNonFinite>(std::ranges::find(kOnNonFinite, o.on_nonfinite) -
                                            kOnNonFinite.begin());
  return t;
}

uint64_t steps_of(double epochs, const FinetuneOptions& o, const Task& task) {
  const double samples = epochs * static_cast<double>(task.info().samples_per_epoch);
  return static_cast<uint64_t>(std::ceil(
      samples / static_cast<double>(o.batch * static_cast<int64_t>(o.train.accumulation))));
}

Config run_config(const FinetuneOptions& o, const Task& task) {
  const std::optional<int64_t> window = task.info().window;
  Config c = {{"batch", std::to_string(o.batch)}};
  append_if(window.has_value(), c, "seq", std::to_string(window.value_or(0)));
  const Config rest = {{"accumulate", std::to_string(o.train.accumulation)},
                       {"seed", std::to_string(o.seed)},
                       {"learning-rate", number_text(o.train.schedule.learning_rate)},
                       {"warmup", std::to_string(o.train.schedule.warmup_steps)},
                       {"schedule", o.schedule},
                       {"optimizer", o.train.optimizer.name},
                       {"weight-decay", number_text(value_of(o, "weight_decay", 0))},
                       // Checkpoints store these two settings for every optimizer.
                       {"beta2", number_text(value_of(o, "beta2", 0.999f))},
                       {"momentum", number_text(value_of(o, "momentum", 0))},
                       {"clip", number_text(o.train.clip_norm)},
                       {std::string(kData), task.info().training_data}};
  c.insert(c.end(), rest.begin(), rest.end());
  for (const auto& [name, value] : o.train.optimizer.settings) {
    if (!is_one_of("weight_decay beta2 momentum", name)) {
      c.emplace_back(optimizer_flag(name),
                     find_setting_of(o, name)->is_flag ? std::string() : number_text(value));
    }
  }
  const bool falls = o.schedule != "constant";
  append_if(falls, c, "final-fraction", number_text(o.train.schedule.final_fraction));
  append_if(falls, c, std::string(kSteps), std::to_string(o.steps));
  // Older checkpoints do not have these entries.
  const bool lora = o.lora.rank != 0;
  append_if(lora, c, "lora-rank", std::to_string(o.lora.rank));
  append_if(lora, c, "lora-alpha", number_text(lora_alpha(o)));
  append_if(lora, c, "lora-target", o.lora.target);
  append_if(lora && o.lora.dropout != 0, c, "lora-dropout", number_text(o.lora.dropout));
  append_if(lora && !o.encoding.empty(), c, "quantize", o.encoding);
  append_if(o.compute != FinetuneOptions{}.compute, c, "compute", o.compute);
  append_if(o.train.accumulation > 1 && o.train.gradient_sum == GradientSum::in_place, c,
            "fast-reduce", "");
  append_if(o.device.matmul_precision != DeviceFlags{}.matmul_precision, c, "matmul-precision",
            o.device.matmul_precision);
  const float scale = o.train.precision.loss_scale;
  append_if(scale != 0, c, "loss-scale", number_text(scale));
  append_if(o.head_learning_rate >= 0, c, "head-learning-rate", number_text(o.head_learning_rate));
  append_if(!o.freeze.empty(), c, "freeze", fmt::format("{}", fmt::join(o.freeze, " ")));
  c.insert(c.end(), task.info().settings.begin(), task.info().settings.end());
  return c;
}

Result<std::string> run_id(const Config& config, const Model& model) {
  std::string text;
  for (const auto& [key, value] : config) {
    text += key == kSteps ? "" : key + "=" + value + "\n";
  }
  text += model.parameters();
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  for (const StorageInfo& storage : info.storages) {
    text += storage.file_checksum ? fmt::format("{:016x}\n", *storage.file_checksum) : "\n";
  }
  return hash_text(text);
}

namespace {

// Returns for example "with --batch 8, now 4". A setting may have no value, and may be missing.
std::string difference(const std::string& key, const std::optional<std::string>& before,
                       const std::optional<std::string>& now) {
  const auto shown = [&](const std::optional<std::string>& value) {
    return !value           ? fmt::format("without --{}", key)
           : value->empty() ? fmt::format("with --{}", key)
                            : fmt::format("with --{} {}", key, *value);
  };
  const bool has_value = before && now && !now->empty();
  return fmt::format("{}, now {}", shown(before), has_value ? *now : shown(now));
}

}  // namespace

Status check_same_run(const std::string& path, const Config& saved, const Config& config) {
  const auto require_same = [&](const std::string& key, const std::optional<std::string>& before,
                                const std::optional<std::string>& now) -> Status {
    BOWLINE_REQUIRE_CODE(key == kSteps || before == now, Code::bad_file,
                         "Checkpoint \"{}\" belongs to a run {}. Use the same settings, or start a "
                         "new run in another folder.",
                         path, difference(key, before, now));
    return {};
  };
  for (const auto& [key, value] : config) {
    const std::optional<std::string> before = find_setting(saved, key);
    BOWLINE_REQUIRE_CODE(key != kData || before == value, Code::bad_file,
                         "Checkpoint \"{}\" belongs to a run on other data: its training part has "
                         "{}, and --data has {}. Use the data of that run, or start a new run in "
                         "another folder with the checkpoint as its model.",
                         path, before.value_or("not known"), value);
    BOWLINE_TRY(require_same(key, before, value));
  }
  for (const auto& [key, value] : saved) {
    if (key == kDevice) {  // from here on: the state of the run
      break;
    }
    BOWLINE_TRY(require_same(key, value, find_setting(config, key)));
  }
  return {};
}

Status check_steps(const std::string& path, uint64_t step, uint64_t steps) {
  BOWLINE_REQUIRE(
      step <= steps,
      "Checkpoint \"{}\" is of step {}, beyond --steps {}: its weights cannot be those of "
      "step {}.",
      path, step, steps, steps);
  return {};
}

Status explain_steps(const std::string& path, const SavedRun& saved, const FinetuneOptions& o) {
  BOWLINE_TRY(check_steps(path, saved.step, o.steps));
  const std::optional<std::string> total = find_setting(saved.config, kSteps);
  const std::string now = std::to_string(o.steps);
  if (!total || *total == now || o.extend) {
    return {};
  }
  BOWLINE_REQUIRE(*total != std::to_string(saved.step),
                  "The run of checkpoint \"{}\" is finished: it has made its {} steps. To continue "
                  "to step {}, add --extend.",
                  path, saved.step, now);
  return Status(
      Code::bad_argument,
      fmt::format("Checkpoint \"{}\" is of step {} of a run of {} steps, now {}: the learning rate "
                  "schedule would change. To change the number of steps, add --extend.",
                  path, saved.step, *total, now));
}

}  // namespace bowline::command
