// See update.h.
#include "compute/update.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/update.cpp"
#include "hwy/foreach_target.h"
#include "compute/formulas-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_UPDATE_ONCE
#define BOWLINE_CPU_UPDATE_ONCE
namespace bowline::detail::cpu {

// The object of a formula, as bytes. It is created once per array and copied to the type that the
// formula has in the namespace of an instruction set.
struct FormulaBytes {
  alignas(8) std::byte bytes[128];
  float grad_scale;
};

}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace formulas {

using S = float;
using D = double;
HWY_INLINE double sqrt_of(double x) { return std::sqrt(x); }

#define BOWLINE_FORMULA HWY_INLINE
#define BOWLINE_UPDATE HWY_INLINE
#include "generated/optimizer_formulas.inc"
#undef BOWLINE_FORMULA
#undef BOWLINE_UPDATE

}  // namespace formulas

using formulas::F;

template <class Formula, size_t s>
HWY_INLINE bool is_there(const float* state) {
  return s < Formula::kStates && ((Formula::kOptional >> s & 1) == 0 || state != nullptr);
}
template <class Formula, size_t s, class Part>
HWY_INLINE F load_state(const Part& part, const float* state, size_t i) {
  return is_there<Formula, s>(state) ? F(part.load(state + i)) : F(0.0f);
}
template <class Formula, size_t s, class Part>
HWY_INLINE void store_state(const Part& part, F value, float* state, size_t i) {
  if (is_there<Formula, s>(state)) {
    part.store(value.v, state + i);
  }
}

// Returns 0 times the sum of the new weights, which is NaN if a weight is not finite. States are
// variables instead of an array, so that they stay in registers.
template <class Formula>
HWY_INLINE float update_block(const FormulaBytes& from, size_t n, const float* g, float* w,
                              const States& states) {
  static_assert(std::tuple_size_v<States> == 3);
  Formula formula;
  std::memcpy(&formula, from.bytes, sizeof(formula));
  const F scale = from.grad_scale;
  float* const s0 = states[0];
  float* const s1 = states[1];
  float* const s2 = states[2];
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    F wi = part.load(w + i);
    const F gi = F(part.load(g + i)) * scale;
    F x0 = load_state<Formula, 0>(part, s0, i);
    F x1 = load_state<Formula, 1>(part, s1, i);
    F x2 = load_state<Formula, 2>(part, s2, i);
    formula.apply_to(wi, gi, x0, x1, x2);
    store_state<Formula, 0>(part, x0, s0, i);
    store_state<Formula, 1>(part, x1, s1, i);
    store_state<Formula, 2>(part, x2, s2, i);
    part.store(wi.v, w + i);
    return hn::Mul(wi.v, hn::Zero(FloatTag()));
  });
}

#define BOWLINE_OPTIMIZER(Name, stem)                                              \
  float stem##_block(const FormulaBytes& from, size_t n, const float* g, float* w, \
                     const States& states) {                                       \
    return update_block<formulas::Name>(from, n, g, w, states);                    \
  }
#include "generated/optimizers.inc"

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

#define BOWLINE_OPTIMIZER(Name, stem) HWY_EXPORT(stem##_block);
#include "generated/optimizers.inc"

// The formulas for single values. They create the formula objects, with baseline instructions, so
// that the per-step values do not depend on the instruction set of the kernels.
namespace once {

using S = float;
using D = double;
double sqrt_of(double x) { return std::sqrt(x); }

#define BOWLINE_FORMULA
#define BOWLINE_UPDATE template <class F>
#include "generated/optimizer_formulas.inc"
#undef BOWLINE_FORMULA
#undef BOWLINE_UPDATE

}  // namespace once

struct Reading {
  const Update& from;

  float number(size_t i) const { return from.numbers[i]; }
  bool flag(size_t i) const { return from.numbers[i] != 0; }
  float f32(size_t i) const { return std::bit_cast<float>(from.words[i]); }
  float u32(size_t i) const { return static_cast<float>(from.words[i]); }
};

template <class Formula>
FormulaBytes bytes_of(const Update& from) {
  static_assert(sizeof(Formula) <= sizeof(FormulaBytes::bytes) &&
                std::is_trivially_copyable_v<Formula>);
  const Formula formula(Reading{from});
  FormulaBytes out;
  std::memcpy(out.bytes, &formula, sizeof(formula));
  out.grad_scale = from.grad_scale;
  return out;
}

}  // namespace

bool update(Threads& threads, const Update& call, size_t n, const float* g, float* w,
            const States& states) {
  const auto run = [&](const FormulaBytes& formula, auto block) {
    return all_finite(threads, n, [&](size_t first, size_t size) {
      States from = states;
      for (float*& state : from) {
        state = state == nullptr ? nullptr : state + first;
      }
      return block(formula, size, g + first, w + first, from);
    });
  };
  switch (call.op) {
#define BOWLINE_OPTIMIZER(Name, stem)      \
  case Op::Name:                           \
    return run(bytes_of<once::Name>(call), \
               [](const auto&... arguments) { return BOWLINE_BEST(stem##_block)(arguments...); });
#include "generated/optimizers.inc"
    default:
      return true;
  }
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
