// AccumulateGrad: adds one contribution to the gradient of a storage.
//
// rst: the table entry of grad tells whether this contribution is the first of the submission.
//
// Shapes    grad is the gradient of a storage; in a Repeat it has one entry per iteration.
//           contribution has the same shape. An entry with 0 elements ignores its contribution.
//           grad is always f32, so that several uses of a storage are added without another
//           rounding.
// First     the table entry of grad says whether this is the first contribution of the submission.
// Gradient  none.
#include "ops/op.h"

namespace bowline::detail::accumulate_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY(check_shape("the contribution", c.in(1), "the storage", c.in(0)));
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const bool overwrite = c.facts.first_contribution && !c.facts.accumulate;
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = overwrite ? c.in(1)[i] : c.in(0)[i] + c.in(1)[i];
  }
}

}  // namespace

extern const OpDef op_accumulate_grad{
    .name = "AccumulateGrad",
    .inputs = 2,
    .gradient_rows = GradientRows::added,
    .types = "f32, F -> f32",
    .updates = {{0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = roundings<1>,
};

}  // namespace bowline::detail::accumulate_grad_op
