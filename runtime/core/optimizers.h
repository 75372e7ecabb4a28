// What an optimizer is besides its formula: its settings, and the states that it keeps for each
// weight. The build makes the table of the heads of runtime/ops/formulas/optimizers.
#pragma once

#include <array>
#include <optional>

#include "bowline/optimizer.h"
#include "core/attributes.h"

namespace bowline {

// A list operand of the operator, behind weights, gradients and the scale of the gradients.
struct OptimizerState {
  std::string_view name;
  bool squares;            // never negative
  bool factored;           // of a matrix, two states: the rows and the columns
  std::string_view needs;  // the setting without which the state is missing; empty: always there
};

// A step word that is 1 - setting^update.
struct OptimizerCorrection {
  std::string_view word;
  std::string_view setting;
};

// The names of the settings are the names of the attributes of the operator, but for `decay_all`.
struct OptimizerDef {
  Op op;
  const OptimizerInfo& info;
  std::span<const OptimizerState> states;
  std::span<const OptimizerCorrection> corrections;
};

// The build refuses more of them (tools/cmake/optimizers.py).
constexpr size_t kMostOptimizerStates = 3;
constexpr size_t kMostOptimizerNumbers = 8;  // attributes
constexpr size_t kMostOptimizerWords = 8;

std::span<const OptimizerDef> optimizer_defs();
// Null: there is none.
const OptimizerDef* optimizer_named(std::string_view name);
const OptimizerDef* optimizer_of(Op op);

// The value of a setting that the optimizer has; its default if it is not given.
float setting_of(const OptimizerDef& def, const Optimizer& optimizer, std::string_view name);

// A node of an optimizer with a formula, as kernels see it. Nothing is allocated.
struct UpdateOperands {
  // The attributes in the order of the table, flags as 0 or 1.
  std::array<float, kMostOptimizerNumbers> numbers = {};
  size_t count = 0;  // of the numbers
  // The input that holds each state, if the state is not missing.
  std::array<std::optional<size_t>, kMostOptimizerStates> states;
};
UpdateOperands update_operands(Op op, const Attributes& attributes);

// The inputs before the states: weights, gradients, and the scale of the gradients.
constexpr size_t kUpdateInputs = 3;
constexpr size_t kUpdateScale = 2;

}  // namespace bowline
