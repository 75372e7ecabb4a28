// Cos: the cosine.
//
//   y = cos(x), x in radians
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  accurate for every finite x, however large. An infinite x gives NaN.
// Gradient  CosGrad: dx = -dy sin(x).
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::cos_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {std::cos(x), 1}; }

elementwise::Point slope(double x, const Attributes&) {
  const double s = -std::sin(x);
  return {s, std::abs(x) < 0.5 ? std::abs(s) : 1};
}

}  // namespace

// The range reduction cancels, so the error is relative to 1, not to the result. Below 1 no
// reduction is needed.
extern const OpDef op_cos = elementwise::definition<value, Op::CosGrad>("Cos", roundings<6>);
extern const OpDef op_cos_grad = elementwise::gradient_definition<slope>("CosGrad", roundings<6>);

}  // namespace bowline::detail::cos_op
