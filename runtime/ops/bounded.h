// A value in double precision with a bound of its error in f32 arithmetic. Reference
// implementations evaluate runtime/ops/formulas with this type.
//
// Source    Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.3: running
//           error analysis.
#pragma once

#include <algorithm>
#include <cmath>

namespace bowline::detail::reference {

struct Bounded {
  Bounded() = default;
  Bounded(double x) : value(x) {}
  Bounded(double x, double bound) : value(x), error(bound) {}

  double value = 0;
  double error = 0;  // in units of 2^-24
};

inline double absolute(double error) { return std::ldexp(error, -24); }

// The result of one f32 operation. It is exact if the operands are exact and f32 can represent it.
inline Bounded rounded(double value, double error, double roundings = 1) {
  const bool exact = error == 0 && static_cast<double>(static_cast<float>(value)) == value;
  return {value, exact ? 0 : error + roundings * std::abs(value)};
}

// The error bound of quotients and roots on devices, in roundings.
constexpr double kQuotient = 3;

inline Bounded operator+(Bounded a, Bounded b) {
  return rounded(a.value + b.value, a.error + b.error);
}
inline Bounded operator-(Bounded a) { return {-a.value, a.error}; }
inline Bounded operator-(Bounded a, Bounded b) { return a + -b; }
inline double product_error(Bounded a, Bounded b) {
  return std::abs(a.value) * b.error + std::abs(b.value) * a.error;
}
inline Bounded operator*(Bounded a, Bounded b) {
  const bool by_one = b.error == 0 && std::abs(b.value) == 1;
  return rounded(a.value * b.value, product_error(a, b), by_one ? 0 : 1);
}
inline Bounded operator/(Bounded a, Bounded b) {
  const double quotient = a.value / b.value;
  const double least = std::max(std::abs(b.value) - absolute(b.error), 1e-300);
  return rounded(quotient, (a.error + std::abs(quotient) * b.error) / least, kQuotient);
}
inline bool operator==(Bounded a, Bounded b) { return a.value == b.value; }

// A comparison may go the other way if the operands are closer than their errors.
struct Truth {
  bool holds = false;
  bool sure = true;
};
inline Truth less(Bounded a, Bounded b) {
  const double bound = absolute(a.error + b.error);
  return {a.value < b.value, bound == 0 || !(std::abs(a.value - b.value) <= bound)};
}
inline Truth negative(Bounded x) { return less(x, 0); }
inline Truth positive(Bounded x) { return less(0, x); }
inline Truth is_nan(Bounded x) { return {std::isnan(x.value), true}; }

inline Bounded select(Truth m, Bounded a, Bounded b) {
  const Bounded taken = m.holds ? a : b;
  const double apart = std::ldexp(std::abs(a.value - b.value), 24);
  return m.sure ? taken : Bounded(taken.value, std::max(a.error, b.error) + apart);
}

inline Bounded fma_of(Bounded a, Bounded b, Bounded c) { return a * b + c; }
inline Bounded sqrt_of(Bounded x) {
  const double root = std::sqrt(x.value);
  const double error = absolute(x.error);
  // sqrt(x) - sqrt(x - error), which is at most sqrt(error).
  const double sum = root + std::sqrt(std::max(x.value - error, 0.0));
  return rounded(root, sum > 0 ? x.error / sum : std::ldexp(std::sqrt(error), 24), kQuotient);
}

}  // namespace bowline::detail::reference
