// Definitions of elementwise operators with one or two inputs and of their gradient operators, made
// from functions in double precision. The formulas for kernels are in formulas/<stem>.h.
#pragma once

#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::elementwise {

// A value, and the magnitude against which its rounding error is measured.
struct Point {
  double value = 0;
  double magnitude = 0;
};
using Curve = Point (*)(double x, const Attributes& attributes);

inline Status infer(InferContext& c) { return c.out(0, c.in(0)); }

inline Status infer_gradient(InferContext& c) {
  BOWLINE_TRY(check_shape("dy", c.in(1), "x", c.in(0)));
  return c.out(0, c.in(0));
}

template <Op grad>
Status gradient(GradientContext& c) {
  return c.din(0, c.add1(grad, {c.in(0), c.dout(0)}, c.attributes()));
}

// dx = dy * slope(x). With `choice`, a slope of 0 gives dx = 0 even if dy is not finite.
template <Curve slope, bool choice>
void gradient_oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Point at = slope(c.in(0)[i], c.attributes());
    c.out(0)[i] = choice && at.value == 0 ? 0 : c.in(1)[i] * at.value;
    magnitude[i] = std::abs(c.in(1)[i]) * at.magnitude;
  }
}

// The values that an integer dtype can represent.
struct Range {
  double least;
  double most;
};
inline Range range_of(DType t) {
  const int bits = 8 * static_cast<int>(size_of(t));
  return t == DType::u8 ? Range{0, 255}
                        : Range{-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
}

// Wraps an integer to the range of an integer dtype (two's complement). Other dtypes keep the
// value.
inline double wrapped(double x, DType t) {
  if (is_float(t) || t == DType::boolean) {
    return x;
  }
  const auto [least, most] = range_of(t);
  const double count = most - least + 1;
  return x - std::floor((x - least) / count) * count;
}

// Converts one value as Cast does.
inline double cast_one(double x, DType from, DType to) {
  if (is_float(to)) {
    return is_float(from) ? x : static_cast<double>(static_cast<float>(x));
  }
  if (to == DType::boolean) {
    return x != 0 ? 1 : 0;
  }
  if (is_float(from)) {
    const auto [least, most] = range_of(to);
    return std::isnan(x) ? 0 : std::clamp(std::trunc(x), least, most);
  }
  return wrapped(x, to);
}

template <Curve y>
void oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Point at = y(c.in(0)[i], c.attributes());
    c.out(0)[i] = wrapped(at.value, c.dtype(0));
    magnitude[i] = at.magnitude;
  }
}

// A function of two values.
using Surface = Point (*)(double a, double b);

inline Status infer_binary(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape y, bowline::broadcast(c.in(0), c.in(1)));
  return c.out(0, y);
}

template <Surface f>
void binary_oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const Point at = f(c.in(0)[i.in_broadcast(c.shape(0))], c.in(1)[i.in_broadcast(c.shape(1))]);
    c.out(0)[i.flat()] = wrapped(at.value, c.dtype(0));
    magnitude[i.flat()] = at.magnitude;
  }
}

// Appends the gradient operators `a` and `b` of the two inputs.
template <Op a, Op b>
Status binary_gradient(GradientContext& c) {
  for (const int i : {0, 1}) {
    if (c.needs(i)) {
      const GradientValue d = c.add1(i == 0 ? a : b, {c.in(0), c.in(1), c.dout(0)}, c.attributes());
      BOWLINE_TRY(c.din(i, summed_to(c, d, c.shape(c.in(i)))));
    }
  }
  return {};
}

inline Status infer_binary_gradient(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape y, bowline::broadcast(c.in(0), c.in(1)));
  BOWLINE_TRY(check_shape("dy", c.in(2), "y", y));
  return c.out(0, y);
}

// With `choice`, a slope of 0 gives a gradient of 0 even if dy is not finite.
template <Surface slope, bool choice>
void binary_gradient_oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const Point at =
        slope(c.in(0)[i.in_broadcast(c.shape(0))], c.in(1)[i.in_broadcast(c.shape(1))]);
    const double dy = c.in(2)[i.flat()];
    c.out(0)[i.flat()] = choice && at.value == 0 ? 0 : dy * at.value;
    magnitude[i.flat()] = std::abs(dy) * at.magnitude;
  }
}

// Makes the operator compute in f32 if the plan may choose 16 bits (OpDef::stays_f32).
constexpr OpDef in_f32(OpDef def) {
  def.stays_f32 = true;
  return def;
}

// y = f(a, b) for operands of the same dtype that broadcast by the rules of NumPy. Integers wrap
// around.
template <Surface f>
constexpr OpDef binary_definition(const char* name, Tolerance (*tolerance)(ToleranceContext&),
                                  Status (*gradient)(GradientContext& c), const char* types) {
  return {.name = name,
          .inputs = 2,
          .types = types,
          .in_place = {{0, 0}, {0, 1}},
          .infer = infer_binary,
          .counted = counted::broadcast,
          .gradient = gradient,
          .oracle = BOWLINE_ORACLE(binary_oracle<f>),
          .tolerance = tolerance};
}

// dy times the derivative of y with respect to an input, from a, b and dy. dy has the shape of y.
// Works in place on dy or a.
template <Surface slope, bool choice = false>
constexpr OpDef binary_gradient_definition(const char* name,
                                           Tolerance (*tolerance)(ToleranceContext&)) {
  return {.name = name,
          .inputs = 3,
          .in_place = {{0, 2}, {0, 0}},
          .infer = infer_binary_gradient,
          .oracle = BOWLINE_ORACLE((binary_gradient_oracle<slope, choice>)),
          .tolerance = tolerance};
}

// y = comparison of a and b, which have the same dtype and broadcast. Comparisons have no gradient.
template <Surface f>
constexpr OpDef comparison(const char* name, const char* types) {
  return {.name = name,
          .inputs = 2,
          .types = types,
          .infer = infer_binary,
          .counted = counted::broadcast,
          .oracle = BOWLINE_ORACLE(binary_oracle<f>)};
}

// Gradient of a function whose slope is 0 wherever the slope exists.
inline Status zero_gradient(GradientContext& c) { return c.din(0, zeros_like(c, c.in(0))); }

// y [any shape] = f(x). Integers wrap around.
template <Curve y>
constexpr OpDef definition(const char* name, Tolerance (*tolerance)(ToleranceContext&),
                           Status (*gradient)(GradientContext& c), const char* types = "F -> F") {
  return {.name = name,
          .types = types,
          .in_place = {{0, 0}},
          .infer = infer,
          .counted = counted::elementwise,
          .gradient = gradient,
          .oracle = BOWLINE_ORACLE(oracle<y>),
          .tolerance = tolerance};
}

// The same with a gradient; `grad` is the gradient operator.
template <Curve y, Op grad>
constexpr OpDef definition(const char* name, Tolerance (*tolerance)(ToleranceContext&),
                           const char* types = "F -> F") {
  return definition<y>(name, tolerance, gradient<grad>, types);
}

// dx = dy f'(x), where x and dy have the same shape. Works in place on either. Not differentiable.
template <Curve slope, bool choice = false>
constexpr OpDef gradient_definition(const char* name, Tolerance (*tolerance)(ToleranceContext&)) {
  return {.name = name,
          .inputs = 2,
          .in_place = {{0, 0}, {0, 1}},
          .infer = infer_gradient,
          .oracle = BOWLINE_ORACLE((gradient_oracle<slope, choice>)),
          .tolerance = tolerance};
}

}  // namespace bowline::detail::elementwise
