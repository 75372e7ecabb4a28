// The reference implementation of optimizers with formulas: the formulas in double precision, with
// bounds of the errors. tests/torch compares the formulas with PyTorch.
#pragma once

#include "core/optimizers.h"
#include "ops/bounded.h"
#include "ops/op.h"

namespace bowline::detail::optimizer {
namespace formulas {

using namespace reference;
using S = Bounded;
using D = Bounded;
using F = Bounded;
#define BOWLINE_FORMULA
#define BOWLINE_UPDATE
#include "generated/optimizer_formulas.inc"
#undef BOWLINE_FORMULA
#undef BOWLINE_UPDATE

}  // namespace formulas

// The values of a node that a formula reads.
struct Reading {
  UpdateOperands operands;
  std::vector<double> words;  // the per-step scalars that the operator reads

  reference::Bounded number(size_t i) const { return static_cast<double>(operands.numbers[i]); }
  bool flag(size_t i) const { return operands.numbers[i] != 0; }
  reference::Bounded f32(size_t i) const { return words[i]; }
  reference::Bounded u32(size_t i) const { return words[i]; }
};

template <class Formula>
void compute(const OracleContext& c) {
  using reference::Bounded;
  constexpr std::span<const StepWordInfo> kWords = step_words(Formula::kOp);
  constexpr auto kLast = static_cast<uint32_t>(kWords.size() - 1);
  Reading in{update_operands(Formula::kOp, c.attributes()), {}};
  for (uint32_t i = 0; i < kLast; ++i) {
    in.words.push_back(kWords[i].type == StepType::f32
                           ? static_cast<double>(c.step(StepWord<float>{i}))
                           : static_cast<double>(c.step(StepWord<uint32_t>{i})));
  }
  const Formula formula(in);
  const bool halted = c.facts.error || c.step(StepWord<uint32_t>{kLast - 1}) != 0;
  const auto output = [](size_t input) { return static_cast<int>(input) - 2; };
  const auto finish = [&](int o, size_t i, Bounded x) {
    c.out(o)[i] = x.value;
    c.magnitude(o)[i] = x.error;
  };
  for (int o = 0; o < c.inputs() - 2; ++o) {
    c.zero_magnitude(o);
  }
  const auto values = static_cast<int>(updated_values(c.dtype(0), static_cast<size_t>(c.inputs())));
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    Bounded w = c.in(values)[i];
    Bounded states[kMostOptimizerStates];
    for (size_t s = 0; s < Formula::kStates; ++s) {
      states[s] = in.operands.states[s] ? c.in(static_cast<int>(*in.operands.states[s]))[i] : 0;
    }
    if (!halted) {
      formula.apply_to(w, Bounded(c.in(1)[i]) * Bounded(c.in(2)[0]), states[0], states[1],
                       states[2]);
      if (!std::isfinite(w.value)) {
        c.write(StepWord<uint32_t>{kLast}, 1);
      }
    }
    if (values != 0) {
      finish(values - 2, i, w);
    }
    finish(0, i, halted ? Bounded(c.in(0)[i]) : w);
    for (size_t s = 0; s < Formula::kStates; ++s) {
      if (in.operands.states[s]) {
        finish(output(*in.operands.states[s]), i, states[s]);
      }
    }
  }
}

}  // namespace bowline::detail::optimizer
