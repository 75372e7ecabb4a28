// ReduceMin: the smallest element over some axes.
//
//   y[kept axes] = min of x over `axes`
//
// Shapes    x -> y without the axes, or with 1 in their place (keep_dims). No axes given: all of
//           them. There is at least one element under each minimum.
// Numerics  exact. A NaN under a minimum makes it NaN.
// Gradient  elements that equal the minimum share dy evenly; NaN where the minimum is NaN. As amin
//           of PyTorch.
// Source    ONNX operators, ReduceMin (which gives the greatest number for a minimum of nothing).
#include "ops/extreme.h"

namespace bowline::detail::reduce_min_op {

extern const OpDef op_reduce_min;
const OpDef op_reduce_min = extreme::reduction<false>("ReduceMin");

}  // namespace bowline::detail::reduce_min_op
