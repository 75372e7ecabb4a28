// The definitions of an operator of one input that works element by element, and of its gradient operator, from two functions
// in double precision. Its formula for kernels stands in formulas/<stem>.h.
#pragma once

#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::elementwise {

// A value, and what its rounding errors are measured against.
struct Point {
  double value = 0;
  double magnitude = 0;
};
using Curve = Point (*)(double x, const Attributes& attributes);

inline Status infer(InferContext& c) { return c.out(0, c.in(0)); }

inline Status infer_gradient(InferContext& c) {
  BOWLINE_REQUIRE(c.in(0) == c.in(1), "Shape of dy ({}) is not that of x ({}).", c.in(1), c.in(0));
  return c.out(0, c.in(0));
}

template <Op grad>
Status gradient(GradientContext& c) {
  return c.din(0, c.add1(grad, {c.in(0), c.dout(0)}, c.attributes()));
}

template <Curve y>
void oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Point at = y(c.in(0)[i], c.attributes());
    c.out(0)[i] = at.value;
    magnitude[i] = at.magnitude;
  }
}

// dx = dy * slope(x)
template <Curve slope>
void gradient_oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Point at = slope(c.in(0)[i], c.attributes());
    c.out(0)[i] = c.in(1)[i] * at.value;
    magnitude[i] = std::abs(c.in(1)[i]) * at.magnitude;
  }
}

// y [any shape] = f(x); `grad` is the operator of its gradient.
template <Curve y, Op grad>
constexpr OpDef definition(const char* name, Tolerance (*tolerance)(ToleranceContext&)) {
  return {.name = name,
          .in_place = {{0, 0}},
          .infer = infer,
          .counted = counted::elementwise,
          .gradient = gradient<grad>,
          .oracle = BOWLINE_ORACLE(oracle<y>),
          .tolerance = tolerance};
}

// dx = dy f'(x), of x and dy of one shape; in place on either. It has no gradient itself.
template <Curve slope>
constexpr OpDef gradient_definition(const char* name, Tolerance (*tolerance)(ToleranceContext&)) {
  return {.name = name,
          .inputs = 2,
          .in_place = {{0, 0}, {0, 1}},
          .infer = infer_gradient,
          .oracle = BOWLINE_ORACLE(gradient_oracle<slope>),
          .tolerance = tolerance};
}

}  // namespace bowline::elementwise
