// ArgMin: the index of the smallest element along an axis.
//
//   y[.., ..] = the i with the smallest x[.., i, ..]
//
// Shapes    x of rank >= 1 with at least one element along the axis  ->  y i32 without the axis.
//           With keep_dims, the axis remains with size 1.
// Numerics  among equal elements, the first is selected, or the last with `last`. NaN counts as
//           smaller than every other value, as in PyTorch; ONNX does not specify NaN.
// Gradient  none.
#include "ops/extreme.h"

namespace bowline::detail::arg_min_op {

extern const OpDef op_arg_min = extreme::position<false>("ArgMin");

}  // namespace bowline::detail::arg_min_op
