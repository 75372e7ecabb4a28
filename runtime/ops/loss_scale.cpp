// LossScale: the gradient of the loss, with which a backward pass starts.
//
//   y = loss_scale
//
// Shapes    -> y [], f32.
// Step      loss_scale. It keeps f16 gradients inside the range of f16. The update divides by it
//           (gradient_scale).
// Gradient  none.
// Source    Micikevicius et al., "Mixed Precision Training", 2018, section 3.2.
//! step loss_scale: f32 = 1
#include "ops/op.h"

namespace bowline::detail::loss_scale_op {
namespace {

Status infer(InferContext& c) { return c.out(0, Shape{}); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  c.out(0)[0] = c.step(step::loss_scale::loss_scale);
}

}  // namespace

extern const OpDef op_loss_scale{
    .name = "LossScale",
    .inputs = 0,
    .types = "-> f32",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::loss_scale_op
