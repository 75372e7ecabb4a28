// Makes the operator of an optimizer that has a formula (formulas/optimizers).
//
//   weights = masters, rounded to nearest even; overflow gives infinity. Only 16-bit weights have
//             masters, which the formula updates instead.
//
// Operands  lists of storages: weights, grads; scale [1]; lists: the states that are not missing,
//           then the f32 masters. Updates the weights, the states and the masters.
// Step      does nothing if error or non_finite is set; sets weights_non_finite.
// Source    of masters: Micikevicius et al., "Mixed Precision Training", 2018, section 3.1.
#pragma once

#include "core/optimizers.h"
#include "ops/op.h"

#ifdef BOWLINE_ORACLES
#include "ops/optimizer_reference.h"
#endif

namespace bowline::detail::optimizer {

// The input after all inputs of f32 weights is the list of masters.
inline Status check_masters(const InferContext& c, int inputs_of_f32) {
  const bool has_masters = c.dtype(0) != DType::f32;
  const int wanted = inputs_of_f32 + (has_masters ? 1 : 0);
  BOWLINE_REQUIRE(c.inputs() == wanted,
                  "With these attributes and {} weights the operator takes {} inputs, not {}.",
                  c.dtype(0), wanted, c.inputs());
  return {};
}

// Checks the number of inputs. Outputs get the shape of input 0: lists have no shape of their own.
inline Status infer(Op op, InferContext& c) {
  const UpdateOperands operands = update_operands(op, c.attributes());
  int wanted = static_cast<int>(kUpdateInputs);
  for (const std::optional<size_t>& state : operands.states) {
    wanted += state ? 1 : 0;
  }
  BOWLINE_TRY(check_masters(c, wanted));
  BOWLINE_REQUIRE(c.in(kUpdateScale) == Shape{1}, "The scale has shape {}, not [1].",
                  c.in(kUpdateScale));
  for (int o = 0; o < c.inputs() - 2; ++o) {
    BOWLINE_TRY(c.out(o, c.in(0)));
  }
  return {};
}

// `states` are always there, `optional` ones only with some attributes.
template <Op op>
constexpr OpDef definition(const char* name, int states, int optional,
                           void (*oracle)(const OracleContext& c)) {
  constexpr int kInputs = static_cast<int>(kUpdateInputs);
  OpDef def;
  def.name = name;
  def.inputs = kInputs + states;
  def.optional_inputs = optional + 1;
  def.outputs = 1 + states;
  def.optional_outputs = optional + 1;
  def.takes_lists = true;
  def.list_inputs = ((1u << (kInputs + states + optional + 1)) - 1) & ~(1u << kUpdateScale);
  def.types = "F, f32 -> F, f32";
  def.updates[0] = {0, 0};
  for (int i = 0; i < states + optional + 1; ++i) {
    def.updates[1 + i] = {1 + i, kInputs + i};
  }
  def.infer = [](InferContext& c) { return infer(op, c); };
  def.oracle = oracle;
  // The reference computes the error bound of every element.
  def.tolerance = [](ToleranceContext&) { return Tolerance::of_roundings(1); };
  return def;
}

}  // namespace bowline::detail::optimizer
