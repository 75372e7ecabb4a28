// The types and functions that formulas use (runtime/ops/formulas/README.md), for f32 vectors, and
// all formulas. Included once per instruction set.
#if defined(BOWLINE_CPU_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_FORMULAS_INL_H
#undef BOWLINE_CPU_FORMULAS_INL_H
#else
#define BOWLINE_CPU_FORMULAS_INL_H
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// clang-format off
#include "compute/math-inl.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace formulas {

struct F {
  F() = default;
  HWY_INLINE F(FloatVector x) : v(x) {}
  HWY_INLINE F(float x) : v(hn::Set(FloatTag(), x)) {}
  FloatVector v;
};
struct M {
  hn::Mask<FloatTag> v;
};

HWY_INLINE F operator+(F a, F b) { return hn::Add(a.v, b.v); }
HWY_INLINE F operator-(F a, F b) { return hn::Sub(a.v, b.v); }
HWY_INLINE F operator*(F a, F b) { return hn::Mul(a.v, b.v); }
HWY_INLINE F operator/(F a, F b) { return hn::Div(a.v, b.v); }
HWY_INLINE F operator-(F a) { return hn::Neg(a.v); }

HWY_INLINE M operator!(M m) { return {hn::Not(m.v)}; }
HWY_INLINE M operator&&(M m, M n) { return {hn::And(m.v, n.v)}; }
HWY_INLINE M operator||(M m, M n) { return {hn::Or(m.v, n.v)}; }

HWY_INLINE F select(M m, F a, F b) { return hn::IfThenElse(m.v, a.v, b.v); }
HWY_INLINE M less(F a, F b) { return {hn::Lt(a.v, b.v)}; }
HWY_INLINE M equal(F a, F b) { return {hn::Eq(a.v, b.v)}; }
HWY_INLINE M is_nan(F x) { return {hn::IsNaN(x.v)}; }
HWY_INLINE M negative(F x) { return less(x, 0.0f); }
HWY_INLINE M positive(F x) { return less(0.0f, x); }
HWY_INLINE F fma_of(F a, F b, F c) { return hn::MulAdd(a.v, b.v, c.v); }
HWY_INLINE F abs_of(F x) { return hn::Abs(x.v); }
HWY_INLINE F min_of(F a, F b) { return hn::Min(a.v, b.v); }
HWY_INLINE F max_of(F a, F b) { return hn::Max(a.v, b.v); }
HWY_INLINE F quotient_of(F a, F b) { return a / b; }
HWY_INLINE F floor_of(F x) { return hn::Floor(x.v); }
HWY_INLINE F round_of(F x) { return hn::Round(x.v); }
HWY_INLINE F sqrt_of(F x) { return hn::Sqrt(x.v); }
HWY_INLINE F exp_of(F x) { return exp(FloatTag(), x.v); }
HWY_INLINE F expm1_of(F x) { return expm1(FloatTag(), x.v); }
HWY_INLINE F log_of(F x) { return log(FloatTag(), x.v); }
HWY_INLINE F log1p_of(F x) { return hn::Log1p(FloatTag(), x.v); }
HWY_INLINE F tanh_of(F x) { return tanh(FloatTag(), x.v); }
HWY_INLINE F erf_of(F x) { return erf(FloatTag(), x.v); }
HWY_INLINE F sin_of(F x) { return sin(FloatTag(), x.v); }
HWY_INLINE F cos_of(F x) { return cos(FloatTag(), x.v); }
HWY_INLINE F pow_of(F a, F b) { return pow(FloatTag(), a.v, b.v); }
HWY_INLINE F sigmoid(F x, F& rest) { return HWY_NAMESPACE::sigmoid(FloatTag(), x.v, rest.v); }
HWY_INLINE F times_sigmoid(F f, F x) {
  F rest;
  return f * sigmoid(x, rest);
}
HWY_INLINE F normal_cdf(F x, F& density) {
  return HWY_NAMESPACE::normal_cdf(FloatTag(), x.v, density.v);
}

#define FORWARD(name) \
  HWY_INLINE F name##_forward([[maybe_unused]] F x, [[maybe_unused]] F p, [[maybe_unused]] F q)
#define GRADIENT(name)                                                                            \
  HWY_INLINE F name##_gradient([[maybe_unused]] F x, [[maybe_unused]] F dy, [[maybe_unused]] F p, \
                               [[maybe_unused]] F q)
#define BINARY(name) HWY_INLINE F name##_binary(F a, F b)
#define GRADIENT_A(name) \
  HWY_INLINE F name##_gradient_a([[maybe_unused]] F a, [[maybe_unused]] F b, F dy)
#define GRADIENT_B(name) \
  HWY_INLINE F name##_gradient_b([[maybe_unused]] F a, [[maybe_unused]] F b, F dy)
#define COMPARE(name) HWY_INLINE M name##_compare(F a, F b)
#include "generated/formulas.inc"
#undef FORWARD
#undef GRADIENT
#undef BINARY
#undef GRADIENT_A
#undef GRADIENT_B
#undef COMPARE

}  // namespace formulas
}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
