// Floor: rounds down.
//
//   y = the largest integer that is not above x
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  zero, the slope wherever the slope exists.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::floor_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {std::floor(x), 0}; }

constexpr auto gradient = elementwise::zero_gradient;

}  // namespace

extern const OpDef op_floor = elementwise::definition<value>("Floor", exactly, gradient);

}  // namespace bowline::detail::floor_op
