// ReduceMin: the minimum over some axes.
//
//   y[kept axes] = min of x over `axes`
//
// Shapes    x  ->  y without the reduced axes. With keep_dims, they remain with size 1. If `axes`
//           is empty, all axes are reduced. There is at least one element per minimum.
// Numerics  exact. NaN makes the minimum NaN.
// Gradient  elements equal to the minimum share dy equally, as in amin of PyTorch. If the minimum
//           is NaN, the gradient is NaN.
// Source    ONNX operators, ReduceMin, which returns the highest value for the minimum of no
//           elements.
#include "ops/extreme.h"

namespace bowline::detail::reduce_min_op {

extern const OpDef op_reduce_min = extreme::reduction<false>("ReduceMin");

}  // namespace bowline::detail::reduce_min_op
