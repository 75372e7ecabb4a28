/// \file
/// Optimizers and learning rate schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace bowline {

/// The choice of an optimizer, for example `{"sgd", {{"momentum", 0.9f}, {"nesterov", 1}}}`.
///
/// optimizers() lists the names and settings. operators.md (share/doc/bowline) says what each
/// computes. Trainer::create() returns bad_argument for an unknown optimizer, an unknown setting,
/// and a value outside its range.
struct Optimizer {
  std::string name = "adamw";
  /// The settings that differ from their defaults. A flag is 0 or 1.
  std::map<std::string, float, std::less<>> settings = {};
};

/// A setting of an optimizer: its default and its range.
struct OptimizerSetting {
  std::string_view name;
  std::string_view description;
  bool is_flag = false;  ///< The value is 0 or 1.
  float default_value = 0;
  float min = 0;              ///< Lower end of the range.
  float max = 0;              ///< Upper end of the range.
  bool min_inclusive = true;  ///< The range contains `min`.
  bool max_inclusive = true;  ///< The range contains `max`.
};

/// An available optimizer. Every optimizer has the settings `weight_decay` and `decay_all`.
///
/// `weight_decay` applies to weights of rank 2 or more. If `decay_all` is 1, it applies to all.
struct OptimizerInfo {
  std::string_view name;
  std::string_view description;
  std::span<const OptimizerSetting> settings;
};

/// Returns all optimizers in alphabetical order.
std::span<const OptimizerInfo> optimizers();

/// A learning rate schedule: warmup, then constant or falling.
///
/// During the warmup, the rate rises linearly from 0 to `learning_rate`.
struct Schedule {
  /// How the rate falls after the warmup: not at all, linearly, or as half a cosine wave.
  enum class Kind : uint8_t { constant, linear, cosine };
  Kind kind = Kind::constant;
  float learning_rate = 1e-3f;
  float final_fraction = 0.1f;  ///< The rate at the last step, as a fraction of `learning_rate`.
  uint64_t warmup_steps = 0;
  uint64_t total_steps = 0;  ///< Steps including the warmup. 0: unknown, allowed for constant only.
};

/// Returns the learning rate of a step. The first step is 1. After the last, the rate is constant.
float learning_rate_at(const Schedule& schedule, uint64_t step);

}  // namespace bowline

#pragma GCC visibility pop
