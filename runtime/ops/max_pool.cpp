// MaxPool: the largest element of each window.
//
//   y[n, c, o] = max over k of x[n, c, o * stride + k * dilation - pad], of the elements that lie
//       in x
//
// Shapes    x [N, C, spatial...] of rank 3, 4 or 5  ->  y [N, C, floor((spatial + pads - dilation *
//           (window - 1) - 1) / stride) + 1
//           ...]; with `ceil` the quotient is rounded up, but a window that would begin in the end
//           pads or behind them is left out.
// Domain    pads are smaller than what a window reaches over.
// Numerics  exact. A NaN in a window is its result. A window without an element of x, which a
//           dilation allows, gives -inf.
// Gradient  MaxPoolGrad: dy goes to the first of the largest elements, in storage order.
// Differs   from ONNX MaxPool: there is no second output, no auto_pad, and storage order is that of
//           rows. PyTorch asks for pads of at most half a window, and sends the gradient of several
//           NaN to the last of them.
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

// Channels do not see each other.
Status counted_axes(CountedContext& c) { return counted_in_front_of(2, c); }

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

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_max_pool;
const OpDef op_max_pool{
    .name = "MaxPool",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::max_pool_op
