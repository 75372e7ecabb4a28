// Trigonometric and hyperbolic functions that Bowline does not have as operators.
#include <numbers>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

template <Term (*formula)(const Term& x)>
Term by_f32(Context& c) {
  const Term x = c.in(0);
  return cast(formula(in_f32(x)), x.dtype);
}

// Returns x + factor * x^3 for |x| < 2^-8, where the next terms are below the f32 precision.
// Otherwise returns `y`.
Term near_zero(const Term& x, double factor, const Term& y) {
  const Term cube = square(x) * x;
  const Term is_near = abs(x) < 0x1p-8;
  return where(is_near, x + cube * factor, y);
}

// sinh(x) = (e^x - e^-x) / 2, computed from expm1 so that small values keep their digits.
// With a = e^x - 1 it is (a + a / (a + 1)) / 2. There is no operator for expm1, but Elu computes it
// below 0. So a = -expm1(-|x|) and sinh|x| = (a + a / (1 - a)) / 2.
Term sinh(const Term& x) {
  const Term down = -abs(x);
  const Term a = -elu(down, 1);
  const Term near = (a + a / exp(down)) * 0.5;
  // Far from 0 the result is e^|x| / 2. Computed from e^(|x| / 2), because e^|x| overflows earlier.
  const Term h = exp(abs(x) * 0.5);
  const Term is_far = abs(x) > 16;
  return sign(x) * where(is_far, h * 0.5 * h, near);
}

// (e^x + e^-x) / 2 from h = e^(|x| / 2), because e^x overflows before its half.
Term cosh(const Term& x) {
  const Term h = exp(abs(x) * 0.5);
  const Term half = h * 0.5;
  return half * h + 0.5 / h / h;
}

Term tan(const Term& x) { return sin(x) / cos(x); }

// sign(x) log(|x| + sqrt(x^2 + 1)); sign(x) log(2 |x|) where x^2 would overflow
Term asinh(const Term& x) {
  const Term size = abs(x);
  const Term root = sqrt(square(x) + 1);
  const Term is_far = size > 0x1p30;
  const Term far = log(size) + std::numbers::ln2;
  return near_zero(x, -1.0 / 6, sign(x) * where(is_far, far, log(size + root)));
}

// log(x + sqrt(x - 1) sqrt(x + 1)); NaN below 1
Term acosh(const Term& x) { return log(x + sqrt(x - 1) * sqrt(x + 1)); }

// (log(1 + x) - log(1 - x)) / 2
Term atanh(const Term& x) { return near_zero(x, 1.0 / 3, log((x + 1) / (1 - x)) * 0.5); }

// Range reduction: |x| > tan(3 pi / 8) uses pi / 2 + atan(-1 / |x|), and |x| > tan(pi / 8) uses
// pi / 4 + atan((|x| - 1) / (|x| + 1)). The rest is a polynomial.
//
// Source  Moshier, "Methods and Programs for Mathematical Functions", 1989 (atanf of Cephes).
Term atan(const Term& x) {
  constexpr double kQuarter = 1.5707963267948966;
  const Term size = abs(x), one = scalar_like(x, 1), zero = scalar_like(x, 0);
  const Term large = size > 2.414213562373095;
  const Term middle = size > 0.4142135623730950;
  const Term inverse = -(one / where(large, size, one));
  // A large value does not use this quotient, which could be non-finite.
  const Term bounded = where(large, one, size);
  const Term quotient = (bounded - 1) / (bounded + 1);
  const Term t = where(large, inverse, where(middle, quotient, bounded));
  const Term offset = where(large, kQuarter, where(middle, kQuarter / 2, zero));
  const Term z = square(t);
  Term sum = z * 8.05374449538e-2 - 1.38776856032e-1;
  sum = sum * z + 1.99777106478e-1;
  sum = sum * z - 3.33329491539e-1;
  const Term part = sum * z * t + t;
  return sign(x) * (part + offset);
}

// 2 atan(x / (1 + sqrt(1 - x^2))); NaN outside of [-1, 1]
Term asin(const Term& x) { return atan(x / (sqrt((1 - x) * (x + 1)) + 1)) * 2; }

// 2 atan(sqrt((1 - x) / (1 + x))); at -1 the argument is infinite
Term acos(const Term& x) { return atan(sqrt((1 - x) / (x + 1))) * 2; }

constexpr Lowering kTrigonometryLowerings[] = {
    {"Tan", plain<tan>},      {"Asin", plain<asin>},    {"Acos", plain<acos>},
    {"Atan", plain<atan>},    {"Sinh", by_f32<sinh>},   {"Cosh", by_f32<cosh>},
    {"Asinh", by_f32<asinh>}, {"Acosh", by_f32<acosh>}, {"Atanh", by_f32<atanh>},
};

}  // namespace

std::span<const Lowering> lowerings_of_trigonometry() { return kTrigonometryLowerings; }

}  // namespace bowline::onnx
