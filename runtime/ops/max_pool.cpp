// MaxPool: the largest element of each window.
//
//   y[n, c, o] = max over k of x[n, c, o * stride + k * dilation - pad]
//   k runs over the window elements inside x
//
// Shapes    x [N, C, spatial...] of rank 3, 4 or 5  ->  y [N, C, floor((spatial + pads - dilation *
//           (window - 1) - 1) / stride) + 1 ...]. With `ceil`, the quotient is rounded up, without
//           windows that start in or behind the end pads.
// Domain    pads are smaller than the extent of the window, dilation * (window - 1) + 1.
// Numerics  exact. A NaN in a window makes its result NaN. With dilation, a window can contain no
//           element of x; its result is -inf.
// Gradient  MaxPoolGrad: dy is added to the first of the largest elements, in row-major order.
// Differs   from ONNX MaxPool: the second output, auto_pad and column-major storage_order do not
//           exist. PyTorch limits pads to half a window, and adds the gradient to the last of
//           several NaN.
// Source    PyTorch max_pool2d; ONNX operators, MaxPool.
#include <limits>

#include "ops/window.h"

namespace bowline::detail::max_pool_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape y, pooled(c.attributes<PoolAttributes>(), c.in(0)));
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::MaxPoolGrad, {c.in(0), c.out(0), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PoolAttributes>();
  const Windows w = windows_of(t, c.shape(0), pool_window(t), c.out_shape(0));
  const auto inputs = static_cast<size_t>(w.inputs()), outputs = static_cast<size_t>(w.outputs());
  std::ranges::fill(c.out(0), -std::numeric_limits<double>::infinity());
  for (size_t plane = 0; plane * outputs < c.out(0).size(); ++plane) {
    each_tap(w, [&](size_t o, size_t, size_t i) {
      const double x = c.in(0)[plane * inputs + i];
      double& y = c.out(0)[plane * outputs + o];
      y = x > y || std::isnan(x) ? x : y;
    });
  }
}

}  // namespace

extern const OpDef op_max_pool{
    .name = "MaxPool",
    .infer = infer,
    .counted = counted_in_front_of<2>,  // channels are independent
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::max_pool_op
