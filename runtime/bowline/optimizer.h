/// \file
/// Optimizers and learning rate schedules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace bowline {

/// An optimizer and its settings.
///
/// The comment of a setting names the optimizers that read it; the others ignore it. operators.md
/// says what each optimizer computes. Checkpoints hold the moments in the order of the operator's
/// inputs.
struct Optimizer {
  /// The algorithm.
  enum class Kind : uint8_t { adamw, sgd, adagrad, rmsprop, lion, adafactor };
  /// Returns the optimizer with the defaults of PyTorch, or of its authors (Lion).
  static Optimizer of(Kind kind);

  Kind kind = Kind::adamw;
  // Of storages with rank >= 2. Decoupled for AdamW, Lion and Adafactor, L2 for SGD, Adagrad and
  // RMSprop.
  float weight_decay = 0.01f;
  float beta1 = 0.9f;      // AdamW, Lion
  float beta2 = 0.999f;    // AdamW, Lion
  float eps = 1e-8f;       // AdamW, Adagrad, RMSprop; Adafactor: of the second moments, 0: 2^-23
  float momentum = 0;      // SGD, RMSprop
  bool nesterov = false;   // SGD
  bool decay_all = false;  // decay vectors and scalars too
  float learning_rate_decay = 0;  // Adagrad
  float alpha = 0.99f;            // RMSprop: what stays of the mean of squares
  bool centered = false;          // RMSprop
  float beta2_decay = -0.8f;      // Adafactor: the power of the step that the new squares weigh
  float eps2 = 1e-3f;             // Adafactor: least scale of a weight
  float update_clip = 1;          // Adafactor: largest root mean square of an update
};
/// Returns "adamw", "sgd", ...
std::string_view name_of(Optimizer::Kind kind);
/// Returns the names of all optimizers.
std::span<const std::string_view> optimizer_names();

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

/// Returns the learning rate of a step. The first step is 1.
float learning_rate_at(const Schedule& schedule, uint64_t step);

}  // namespace bowline

#pragma GCC visibility pop
