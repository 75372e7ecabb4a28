// Clip: limits values to [min, max].
//
//   y = x < min ? min : x > max ? max : x
//
// Shapes    any x  ->  y of the shape of x. NaN stays NaN. min <= max.
// Gradient  ClipGrad: dx = dy where min <= x <= max, and 0 elsewhere, also where x is NaN.
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::clip_op {
namespace {

elementwise::Point value(double x, const Attributes& a) {
  const double low = a.as<ClipAttributes>().min();
  const double high = a.as<ClipAttributes>().max();
  return {x < low ? low : x > high ? high : x, 0};
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<ClipAttributes>();
  BOWLINE_REQUIRE(t.min() <= t.max(), "The interval from {} to {} is empty.", t.min(), t.max());
  return c.out(0, c.in(0));
}

elementwise::Point slope(double x, const Attributes& a) {
  const double low = a.as<ClipAttributes>().min();
  const double high = a.as<ClipAttributes>().max();
  return {low <= x && x <= high ? 1.0 : 0.0, 0};
}

}  // namespace

extern const OpDef op_clip = [] {
  OpDef def = elementwise::definition<value, Op::ClipGrad>("Clip", exactly);
  def.infer = infer;
  return def;
}();
extern const OpDef op_clip_grad =
    elementwise::gradient_definition<slope, true>("ClipGrad", exactly);

}  // namespace bowline::detail::clip_op
