// StopGradient: returns its input and blocks the gradient.
//
//   y = x
//
// Shapes    any x  ->  y of the same shape.
// Gradient  none for x. A parameter still gets gradients from its other uses, and a tied storage
//           from all its parameters. A Trainer refuses a parameter without another use; freeze() it
//           instead.
// View      y shares the bytes of x; there is no kernel.
#include "ops/elementwise.h"

namespace bowline::detail::stop_gradient_op {
namespace {

[[maybe_unused]] void oracle(const OracleContext& c) {
  std::ranges::copy(c.in(0), c.out(0).begin());
}

}  // namespace

extern const OpDef op_stop_gradient{
    .name = "StopGradient",
    .is_view = true,
    .stops_gradient = true,
    .types = "A -> A",
    .infer = elementwise::infer,
    .counted = counted::elementwise,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::stop_gradient_op
