// Floor: the next whole number below.
//
//   y = the greatest whole number that is not above x
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  zeros: its slope is 0 where it has one.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::floor_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {std::floor(x), 0}; }

constexpr auto gradient = elementwise::zero_gradient;

}  // namespace

extern const OpDef op_floor;
const OpDef op_floor = elementwise::definition<value>("Floor", elementwise::exactly, gradient);

}  // namespace bowline::detail::floor_op
