// Copy: copies a tensor to other memory.
//
//   y = x
//
// Shapes    x of any shape and dtype  ->  y of the same shape and dtype.
// Gradient  dx = dy.
#include "ops/op.h"

namespace bowline::detail::copy_op {
namespace {

Status infer(InferContext& c) { return c.out(0, c.in(0)); }

Status gradient(GradientContext& c) { return c.din(0, c.dout(0)); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = c.in(0)[i];
  }
}

}  // namespace

extern const OpDef op_copy{
    .name = "Copy",
    .role = OpRole::copy,
    .types = "A -> A",
    .infer = infer,
    .gradient = gradient,
    .keeps_loss_weight = 0b1,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::copy_op
