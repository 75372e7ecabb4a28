// Round: the nearest whole number.
//
//   y = the whole number nearest to x; of two the even one
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  zeros: its slope is 0 where it has one.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::round_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {std::nearbyint(x), 0}; }

constexpr auto gradient = elementwise::zero_gradient;

}  // namespace

extern const OpDef op_round;
const OpDef op_round = elementwise::definition<value>("Round", elementwise::exactly, gradient);

}  // namespace bowline::detail::round_op
