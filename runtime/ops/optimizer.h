// Makes the operator of an optimizer that has a formula (formulas/optimizers).
//
// Operands  lists of storages: weights, grads; scale [1]; lists: the states that are not missing.
//           Updates the weights and the states.
// Step      does nothing if error or non_finite is set; sets weights_non_finite.
#pragma once

#include "core/optimizers.h"
#include "ops/op.h"

#ifdef BOWLINE_ORACLES
#include "ops/optimizer_reference.h"
#endif

namespace bowline::detail::optimizer {

// Checks the number of inputs. Outputs get the shape of input 0: lists have no shape of their own.
inline Status infer(Op op, InferContext& c) {
  const UpdateOperands operands = update_operands(op, c.attributes());
  int wanted = static_cast<int>(kUpdateInputs);
  for (const std::optional<size_t>& state : operands.states) {
    wanted += state ? 1 : 0;
  }
  BOWLINE_REQUIRE(c.inputs() == wanted,
                  "With these attributes the operator takes {} inputs, not {}.", wanted,
                  c.inputs());
  BOWLINE_REQUIRE(c.in(kUpdateScale) == Shape{1}, "The scale has shape {}, not [1].",
                  c.in(kUpdateScale));
  for (int o = 0; o < wanted - 2; ++o) {
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
  def.optional_inputs = optional;
  def.outputs = 1 + states;
  def.optional_outputs = optional;
  def.takes_lists = true;
  def.list_inputs = ((1u << (kInputs + states + optional)) - 1) & ~(1u << kUpdateScale);
  def.types = "f32 -> f32";
  def.updates[0] = {0, 0};
  for (int i = 0; i < states + optional; ++i) {
    def.updates[1 + i] = {1 + i, kInputs + i};
  }
  def.infer = [](InferContext& c) { return infer(op, c); };
  def.oracle = oracle;
  // The reference computes the error bound of every element.
  def.tolerance = [](ToleranceContext&) { return Tolerance::of_roundings(1); };
  return def;
}

}  // namespace bowline::detail::optimizer
