// Round: rounds to the nearest integer.
//
//   y = the nearest integer to x; ties go to the even integer
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  zero, the slope wherever the slope exists.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::round_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {std::nearbyint(x), 0}; }

constexpr auto gradient = elementwise::zero_gradient;

}  // namespace

extern const OpDef op_round = elementwise::definition<value>("Round", exactly, gradient);

}  // namespace bowline::detail::round_op
