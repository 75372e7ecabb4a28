// Vector functions for the elementwise formulas and for softmax. Included once per instruction set.
//
// Errors    measured against double over all exponents: exp 1.5 ulp, tanh 2.3 ulp. Of the formulas:
//           silu 2.5 ulp above -4, gelu 2.3e-7 * |x| in both forms, its derivatives 3e-7, both
//           absolute. NaN gives NaN; infinities give the result of the formula in IEEE arithmetic.
// Source    polynomials are our own minimax fits (Lawson iteration): e^r for |r| <= ln(2)/2 to
//           3e-9, and e^(z^2) erfc(z) in t = 1 / (1 + 0.4 z) for z >= 0 to 6e-8.
#if defined(BOWLINE_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_MATH_INL_H
#undef BOWLINE_CPU_MATH_INL_H
#else
#define BOWLINE_CPU_MATH_INL_H
#endif

#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x = n ln(2) + r with |r| <= ln(2) / 2. ln(2) has two parts, so that r is exact to f32.
template <class D, class V, class I>
HWY_INLINE V reduce_exp(D d, V x, I& n) {
  const hn::RebindToSigned<D> di;
  const V whole = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  // 1.5 * 2^23 + n has n in its low bits. Highway's conversion saturates, which needs four more
  // operations.
  const V magic = hn::Set(d, 12582912.0f);
  n = hn::Sub(hn::BitCast(di, hn::Add(whole, magic)), hn::BitCast(di, magic));
  const V r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);
  return hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
}

// e^r - 1 for |r| <= ln(2) / 2, with a small relative error also near 0.
template <class D, class V>
HWY_INLINE V expm1_reduced(D d, V r) {
  V q = hn::MulAdd(r, hn::Set(d, 0.0013814320554956794f), hn::Set(d, 0.008368851616978645f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.041668400168418884f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.1666651964187622f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.4999999403953552f));
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

// 2^n for n of -126 .. 127.
template <class D, class I>
HWY_INLINE hn::Vec<D> power_of_two(D d, I n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -105.0f)), hn::Set(d, 90.0f));
  hn::Vec<decltype(di)> n;
  const V r = reduce_exp(d, bounded, n);
  const V p = hn::Add(expm1_reduced(d, r), hn::Set(d, 1.0f));
  // Two factors, so that results below the smallest normal value and above 2^127 are correct.
  const auto half = hn::ShiftRight<1>(n);
  const V y = hn::Mul(hn::Mul(p, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// e^x for x <= 0. Results below the smallest normal value are 0. For sums that contain a term of 1.
template <class D, class V>
HWY_INLINE V exp_below_zero(D d, V x) {
  const hn::RebindToSigned<D> di;
  hn::Vec<decltype(di)> n;
  const V r = reduce_exp(d, x, n);
  const V p = hn::Add(expm1_reduced(d, r), hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), hn::Mul(p, power_of_two(d, n)));
}

// 1 / (1 + e^-x), and 1 minus the result in `rest`. Computed from e^-|x|, so that small results
// keep their relative error.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x, V& rest) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  const V large = hn::Div(one, hn::Add(one, e));
  const V small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  rest = hn::IfThenElse(negative, large, small);
  return hn::IfThenElse(negative, small, large);
}

// e^x - 1 for x of -30 .. 80, with a small relative error also near 0.
template <class D, class V>
HWY_INLINE V expm1_bounded(D d, V x) {
  const hn::RebindToSigned<D> di;
  hn::Vec<decltype(di)> n;
  const V r = reduce_exp(d, x, n);
  const V scale = power_of_two(d, n);
  return hn::MulAdd(scale, expm1_reduced(d, r), hn::Sub(scale, hn::Set(d, 1.0f)));
}

// (e^2x - 1) / (e^2x + 1). Computing e^2x - 1 directly makes tanh(x) = x near 0.
template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  // tanh(10) is 1 in f32.
  const V twice = hn::Min(hn::Mul(hn::Abs(x), hn::Set(d, 2.0f)), hn::Set(d, 20.0f));
  const V e = expm1_bounded(d, twice);
  const V y = hn::Div(e, hn::Add(e, hn::Set(d, 2.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(y, x));
}

// e^x - 1, with a small relative error also near 0.
template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -30.0f)), hn::Set(d, 80.0f));
  const V y = expm1_bounded(d, bounded);
  const V large = hn::IfThenElse(hn::Lt(hn::Set(d, 80.0f), x), exp(d, x), y);
  return hn::IfThenElse(hn::IsNaN(x), x, large);
}

// Highway's log supports only positive finite values.
template <class D, class V>
HWY_INLINE V log(D d, V x) {
  const V zero = hn::Zero(d);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  const V none = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  return hn::IfThenElse(hn::Or(hn::Lt(x, zero), hn::IsNaN(x)), none, y);
}

// f(a) or f(a, b) of each lane, in double precision.
template <class D, class V, class Function>
HWY_NOINLINE V by_lanes(D d, V a, V b, Function f) {
  HWY_ALIGN float u[hn::MaxLanes(D())];
  HWY_ALIGN float v[hn::MaxLanes(D())];
  hn::Store(a, d, u);
  hn::Store(b, d, v);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    u[i] = static_cast<float>(f(static_cast<double>(u[i]), static_cast<double>(v[i])));
  }
  return hn::Load(d, u);
}

// Highway reduces by multiples of pi only in a limited range. Lanes outside are computed one by
// one.
template <class D, class V>
HWY_INLINE bool in_reach(D d, V x) {
  return hn::AllFalse(d, hn::Not(hn::Le(hn::Abs(x), hn::Set(d, 39000.0f))));
}

template <class D, class V>
HWY_INLINE V sin(D d, V x) {
  return in_reach(d, x) ? hn::Sin(d, x)
                        : by_lanes(d, x, x, [](double u, double) { return std::sin(u); });
}

template <class D, class V>
HWY_INLINE V cos(D d, V x) {
  return in_reach(d, x) ? hn::Cos(d, x)
                        : by_lanes(d, x, x, [](double u, double) { return std::cos(u); });
}

// a^b as in C and IEEE 754: a^0 and 1^b are 1 for all a and b.
template <class D, class V>
HWY_INLINE V pow(D d, V a, V b) {
  return by_lanes(d, a, b, [](double u, double v) { return std::pow(u, v); });
}

// The normal distribution function P(X <= x), and its density in `density`.
template <class D, class V>
HWY_INLINE V normal_cdf(D d, V x, V& density) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  density = hn::Mul(e, hn::Set(d, 0.398942280f));
  // t = 1 / (1 + 0.4 |x| / sqrt(2))
  const V t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.282842712f), one));
  V p = hn::MulAdd(t, hn::Set(d, 0.04125306010246277f), hn::Set(d, -0.14032050967216492f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.08399219065904617f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.08795630186796188f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.07976359128952026f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.19338957965373993f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.20188866555690765f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.22644294798374176f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.22563424706459045f));
  const V below = hn::Mul(hn::Mul(e, hn::Set(d, 0.5f)), hn::Mul(t, p));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, hn::Sub(one, below));
}

// The error function, with a small relative error also near 0.
template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V z = hn::Abs(x);
  // erf(x) / x over x^2 for |x| <= 1
  const V s = hn::Mul(x, x);
  V q = hn::MulAdd(s, hn::Set(d, 7.88928592e-05f), hn::Set(d, -0.000802089518f));
  q = hn::MulAdd(q, s, hn::Set(d, 0.00518954219f));
  q = hn::MulAdd(q, s, hn::Set(d, -0.026854448f));
  q = hn::MulAdd(q, s, hn::Set(d, 0.112836003f));
  q = hn::MulAdd(q, s, hn::Set(d, -0.37612626f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.12837911f));
  const V near = hn::Mul(x, q);
  V density;
  const V below = normal_cdf(d, hn::Mul(z, hn::Set(d, -1.41421356f)), density);
  const V far = hn::CopySign(hn::NegMulAdd(hn::Set(d, 2.0f), below, one), x);
  return hn::IfThenElse(hn::Lt(z, one), near, far);
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
