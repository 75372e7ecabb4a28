// ZeroGrad: clears gradient storages before the first contribution of a step.
//
//   grads = accumulate ? grads : 0
//
// Shapes    a list of storages of any shapes, which are updated.
// Gradient  none.
#include "ops/elementwise.h"

namespace bowline::detail::zero_grad_op {
namespace {

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = c.facts.accumulate ? c.in(0)[i] : 0;
  }
}

}  // namespace

extern const OpDef op_zero_grad{
    .name = "ZeroGrad",
    .gradient_rows = GradientRows::zeroed,
    .takes_lists = true,
    .types = "f32 -> f32",
    .updates = {{0, 0}},
    .infer = elementwise::infer,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::zero_grad_op
