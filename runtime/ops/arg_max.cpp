// ArgMax: where along an axis the largest element is.
//
//   y[.., ..] = the i with the largest x[.., i, ..]
//
// Shapes    x of rank >= 1 with at least one element along the axis  ->  y i32 without the axis, or
//           with 1 in its place
//           (keep_dims).
// Numerics  of equal elements the first, or with `last` the last. NaN counts as the largest number,
//           as in PyTorch; ONNX leaves it open.
// Gradient  none.
#include "ops/extreme.h"

namespace bowline::detail::arg_max_op {

extern const OpDef op_arg_max;
const OpDef op_arg_max = extreme::position<true>("ArgMax");

}  // namespace bowline::detail::arg_max_op
