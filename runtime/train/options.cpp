#include "train/options.h"

#include <algorithm>
#include <cmath>

#include "base/nearest.h"
#include "base/pattern.h"
#include "bowline.h"
#include "core/optimizers.h"

namespace bowline::detail::train {
namespace {

Status check_not_negative(std::string_view name, float value) {
  BOWLINE_REQUIRE(std::isfinite(value) && value >= 0,
                  "{} is {}; it must be finite and not negative.", name, value);
  return {};
}

// For example "[0, 1)".
std::string range_text(const OptimizerSetting& s) {
  return format("{}{}, {}{}", s.min_inclusive ? "[" : "(", s.min, s.max,
                s.max_inclusive ? "]" : ")");
}

bool is_inside(const OptimizerSetting& s, float value) {
  return (s.min_inclusive ? value >= s.min : value > s.min) &&
         (s.max_inclusive ? value <= s.max : value < s.max);
}

Status check_optimizer(const Optimizer& o) {
  std::vector<std::string_view> names;
  for (const OptimizerInfo& info : optimizers()) {
    names.push_back(info.name);
  }
  const OptimizerDef* const def = optimizer_named(o.name);
  BOWLINE_REQUIRE(def != nullptr, "There is no optimizer \"{}\".{}", o.name,
                  suggestion(o.name, names));
  names.clear();
  for (const OptimizerSetting& s : def->info.settings) {
    names.push_back(s.name);
  }
  for (const auto& [name, value] : o.settings) {
    const auto found = std::ranges::find(def->info.settings, name, &OptimizerSetting::name);
    BOWLINE_REQUIRE(found != def->info.settings.end(), "The optimizer {} has no setting \"{}\".{}",
                    o.name, name, suggestion(name, names));
    BOWLINE_REQUIRE(is_inside(*found, value), "{} is {}, outside {}.", name, value,
                    range_text(*found));
    BOWLINE_REQUIRE(!found->is_flag || value == 0 || value == 1, "{} is {}; it must be 0 or 1.",
                    name, value);
  }
  return {};
}

std::string_view name_of(Schedule::Kind kind) {
  constexpr std::string_view names[] = {"constant", "linear", "cosine"};
  return names[static_cast<size_t>(kind)];
}

std::string groups_text(const std::vector<ParameterGroup>& groups) {
  std::string out;
  for (const ParameterGroup& g : groups) {
    out += format(out.empty() ? "{} rate {}" : "; {} rate {}", g.pattern, g.learning_rate_factor);
    out += g.weight_decay ? format(" decay {}", *g.weight_decay) : "";
  }
  return out;
}

// The index of the first group that matches a name.
std::optional<size_t> group_of(std::string_view name, const std::vector<ParameterGroup>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    const Result<std::vector<std::string>> patterns = alternatives(groups[i].pattern);
    if (patterns.ok() && matches_any(patterns.value(), name)) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace

Status check_options(const TrainOptions& o) {
  BOWLINE_REQUIRE(o.accumulation >= 1, "The accumulation is 0; it must be at least 1.");
  BOWLINE_TRY(check_not_negative("learning_rate", o.schedule.learning_rate));
  BOWLINE_TRY(check_not_negative("final_fraction", o.schedule.final_fraction));
  BOWLINE_REQUIRE(o.schedule.kind == Schedule::Kind::constant || o.schedule.total_steps > 0,
                  "A {} schedule ends at its last step, and total_steps is 0. Set total_steps, or "
                  "choose a constant schedule.",
                  name_of(o.schedule.kind));
  BOWLINE_TRY(check_not_negative("clip_norm", o.clip_norm));
  BOWLINE_TRY(check_optimizer(o.optimizer));
  const TrainPrecision& precision = o.precision;
  BOWLINE_REQUIRE(!precision.compute_dtype || is_float(*precision.compute_dtype),
                  "Training can compute in f32, f16 or bf16, not in {}.", *precision.compute_dtype);
  BOWLINE_TRY(check_not_negative("loss_scale", precision.loss_scale));
  BOWLINE_REQUIRE(std::isfinite(precision.initial_scale) && precision.initial_scale >= 1,
                  "initial_scale is {}; it must be finite and at least 1.",
                  precision.initial_scale);
  BOWLINE_REQUIRE(precision.growth_interval >= 1, "growth_interval is 0; it must be at least 1.");
  for (const ParameterGroup& g : o.groups) {
    const std::string place = format("In the group \"{}\".", g.pattern);
    BOWLINE_TRY(check_not_negative("learning_rate_factor", g.learning_rate_factor).at(place));
    BOWLINE_TRY(check_not_negative("weight_decay", g.weight_decay.value_or(0)).at(place));
  }
  return {};
}

std::vector<std::vector<BoundDim>> sets_of_dims(const TrainOptions& options) {
  std::vector<std::vector<BoundDim>> out = {options.dims};
  out.insert(out.end(), options.more_dims.begin(), options.more_dims.end());
  return out;
}

std::string text_of(std::span<const BoundDim> dims) {
  std::string out;
  for (const BoundDim& d : dims) {
    out += format(out.empty() ? "{}={}" : " {}={}", d.name, d.value);
  }
  return out;
}

RunSettings run_settings(const TrainOptions& o) {
  RunSettings s = {{"optimizer", o.optimizer.name}};
  const OptimizerDef& def = *optimizer_named(o.optimizer.name);
  for (const OptimizerSetting& setting : def.info.settings) {
    const float value = setting_of(def, o.optimizer, setting.name);
    s.emplace_back(setting.name, setting.is_flag ? format("{}", value != 0) : format("{}", value));
  }
  s.emplace_back("schedule", name_of(o.schedule.kind));
  s.emplace_back("learning_rate", format("{}", o.schedule.learning_rate));
  s.emplace_back("warmup_steps", format("{}", o.schedule.warmup_steps));
  if (o.schedule.kind != Schedule::Kind::constant) {
    s.emplace_back("final_fraction", format("{}", o.schedule.final_fraction));
    s.emplace_back("total_steps", format("{}", o.schedule.total_steps));
  }
  s.emplace_back("clip_norm", format("{}", o.clip_norm));
  s.emplace_back("accumulation", format("{}", o.accumulation));
  // "none" is also the value for checkpoints of versions without this setting.
  const bool apart = o.accumulation > 1 && o.gradient_sum == GradientSum::by_micro_batch;
  s.emplace_back("gradient_sum", apart ? "by_micro_batch" : "none");
  s.emplace_back("seed", format("{}", o.seed));
  s.emplace_back("entry_point", o.entry_point);
  s.emplace_back("loss", o.loss);
  std::string dims = text_of(o.dims);
  for (const std::vector<BoundDim>& more : o.more_dims) {
    dims += "; " + text_of(more);
  }
  s.emplace_back("dims", std::move(dims));
  s.emplace_back("groups", groups_text(o.groups));
  // "none" is also the value for checkpoints of versions without these settings.
  const TrainPrecision& precision = o.precision;
  s.emplace_back("compute", precision.compute_dtype
                                ? std::string(bowline::name_of(*precision.compute_dtype))
                                : "none");
  s.emplace_back("loss_scale",
                 precision.loss_scale != 0 ? format("{}", precision.loss_scale) : "none");
  return s;
}

Result<UpdateRule> rule_of(uint32_t tie, const params::Table& table, const TrainOptions& o) {
  const OptimizerDef& def = *optimizer_named(o.optimizer.name);
  const bool decays =
      table.storages[tie].shape.rank() >= 2 || setting_of(def, o.optimizer, "decay_all") != 0;
  UpdateRule rule;
  rule.weight_decay = decays ? setting_of(def, o.optimizer, "weight_decay") : 0;
  const params::ParameterRow* first = nullptr;
  std::optional<size_t> group;
  for (const uint32_t number : sorted(table.users(tie))) {
    const params::ParameterRow& p = table.parameters[number];
    const std::optional<size_t> own = group_of(p.name, o.groups);
    if (!own) {
      continue;
    }
    BOWLINE_REQUIRE(!group || *group == *own,
                    "Parameters \"{}\" and \"{}\" share a storage, but the first is in group "
                    "\"{}\" and the second in \"{}\".",
                    first->name, p.name, o.groups[*group].pattern, o.groups[*own].pattern);
    first = first == nullptr ? &p : first;
    group = own;
  }
  if (group) {
    rule.learning_rate_factor = o.groups[*group].learning_rate_factor;
    rule.weight_decay = o.groups[*group].weight_decay.value_or(rule.weight_decay);
  }
  return rule;
}

Status check_groups(const params::Table& table, std::span<const uint32_t> trained,
                    const TrainOptions& options) {
  for (const ParameterGroup& g : options.groups) {
    BOWLINE_TRY_ASSIGN(const std::vector<std::string> patterns, alternatives(g.pattern));
    const bool used = std::ranges::any_of(table.parameters, [&](const params::ParameterRow& p) {
      return matches_any(patterns, p.name) && std::ranges::binary_search(trained, p.tie);
    });
    BOWLINE_REQUIRE(used, "The pattern \"{}\" of a group matches no trainable parameter.",
                    g.pattern);
  }
  return {};
}

}  // namespace bowline::detail::train
