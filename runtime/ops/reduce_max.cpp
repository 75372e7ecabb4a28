// ReduceMax: the maximum over some axes.
//
//   y[kept axes] = max of x over `axes`
//
// Shapes    x  ->  y without the reduced axes. With keep_dims, they remain with size 1. If `axes`
//           is empty, all axes are reduced. There is at least one element per maximum.
// Numerics  exact. NaN makes the maximum NaN.
// Gradient  elements equal to the maximum share dy equally, as in amax of PyTorch. If the maximum
//           is NaN, the gradient is NaN.
// Source    ONNX operators, ReduceMax, which returns the lowest value for the maximum of no
//           elements.
#include "ops/extreme.h"

namespace bowline::detail::reduce_max_op {

extern const OpDef op_reduce_max = extreme::reduction<true>("ReduceMax");

}  // namespace bowline::detail::reduce_max_op
