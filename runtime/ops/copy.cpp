// Copy: copies a tensor to other memory.
//
//   y = x
//
// Shapes    x of any shape and dtype  ->  y of the same shape and dtype.
// Gradient  dx = dy.
#include "ops/elementwise.h"

namespace bowline::detail::copy_op {
namespace {

Status gradient(GradientContext& c) { return c.din(0, c.dout(0)); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  std::ranges::copy(c.in(0), c.out(0).begin());
}

}  // namespace

extern const OpDef op_copy{
    .name = "Copy",
    .role = OpRole::copy,
    .types = "A -> A",
    .infer = elementwise::infer,
    .gradient = gradient,
    .keeps_loss_weight = 0b1,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::copy_op
