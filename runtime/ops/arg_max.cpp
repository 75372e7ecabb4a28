// ArgMax: the index of the largest element along an axis.
//
//   y[.., ..] = the i with the largest x[.., i, ..]
//
// Shapes    x of rank >= 1 with at least one element along the axis  ->  y i32 without the axis.
//           With keep_dims, the axis remains with size 1.
// Numerics  among equal elements, the first is selected, or the last with `last`. NaN counts as
//           larger than every other value, as in PyTorch; ONNX does not specify NaN.
// Gradient  none.
#include "ops/extreme.h"

namespace bowline::detail::arg_max_op {

extern const OpDef op_arg_max = extreme::position<true>("ArgMax");

}  // namespace bowline::detail::arg_max_op
