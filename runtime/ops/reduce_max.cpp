// ReduceMax: the largest element over some axes.
//
//   y[kept axes] = max of x over `axes`
//
// Shapes    x -> y without the axes, or with 1 in their place (keep_dims). No axes given: all of
//           them. There is at least one element under each maximum.
// Numerics  exact. A NaN under a maximum makes it NaN.
// Gradient  elements that equal the maximum share dy evenly; NaN where the maximum is NaN. As amax
//           of PyTorch.
// Source    ONNX operators, ReduceMax (which gives the least number for a maximum of nothing).
#include "ops/extreme.h"

namespace bowline::detail::reduce_max_op {

extern const OpDef op_reduce_max;
const OpDef op_reduce_max = extreme::reduction<true>("ReduceMax");

}  // namespace bowline::detail::reduce_max_op
