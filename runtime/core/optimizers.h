// The settings of optimizers, and the states that they keep for each weight. The build generates
// the table from the heads of the files in runtime/ops/formulas/optimizers.
#pragma once

#include <array>
#include <optional>

#include "bowline/optimizer.h"
#include "core/attributes.h"

namespace bowline {

// A state: a list operand of the operator, after weights, gradients and the scale of the gradients.
struct OptimizerState {
  std::string_view name;
  bool squares;            // never negative
  bool factored;           // a matrix has two states, one for its rows and one for its columns
  std::string_view needs;  // the state exists only with this setting; empty: always
};

// A per-step scalar with the value 1 - setting^update.
struct OptimizerCorrection {
  std::string_view word;
  std::string_view setting;
};

// The settings have the names of the attributes of the operator, except `decay_all`.
struct OptimizerDef {
  Op op;
  const OptimizerInfo& info;
  std::span<const OptimizerState> states;
  std::span<const OptimizerCorrection> corrections;
};

// Limits, which the build checks (tools/cmake/optimizers.py).
constexpr size_t kMostOptimizerStates = 3;
constexpr size_t kMostOptimizerNumbers = 8;  // attributes
constexpr size_t kMostOptimizerWords = 8;

std::span<const OptimizerDef> optimizer_defs();
// These functions return null if there is no such optimizer.
const OptimizerDef* optimizer_named(std::string_view name);
const OptimizerDef* optimizer_of(Op op);

// Returns the value of a setting, or its default if it is not given. The optimizer must have it.
float setting_of(const OptimizerDef& def, const Optimizer& optimizer, std::string_view name);

// The attributes and states of an optimizer node, for kernels. It allocates no memory.
struct UpdateOperands {
  // The attributes in the order of the table, flags as 0 or 1.
  std::array<float, kMostOptimizerNumbers> numbers = {};
  size_t count = 0;  // length of `numbers`
  // The input that holds each state, if the state is not missing.
  std::array<std::optional<size_t>, kMostOptimizerStates> states;
};
UpdateOperands update_operands(Op op, const Attributes& attributes);

// The inputs before the states: weights, gradients, and the scale of the gradients.
constexpr size_t kUpdateInputs = 3;
constexpr size_t kUpdateScale = 2;

// The input with the f32 values that a step changes: the weights, or the masters of 16-bit weights,
// which are the last input.
constexpr size_t updated_values(DType weights, size_t inputs) {
  return weights == DType::f32 ? 0 : inputs - 1;
}

}  // namespace bowline
