// AveragePool: the mean of each window.
//
//   y[n, c, o] = (sum over k of x[n, c, o * stride + k * dilation - pad], of the elements that lie
//       in x) / count(o)
//   count(o): the elements of the window that lie in x, or with `count_pads` in x or its pads
//
// Shapes    x [N, C, spatial...] of rank 3, 4 or 5  ->  y [N, C, floor((spatial + pads - dilation *
//           (window - 1) - 1) / stride) + 1
//           ...]; with `ceil` the quotient is rounded up, but a window that would begin in the end
//           pads or behind them is left out.
// Domain    pads are smaller than what a window reaches over.
// Numerics  accumulated in f32. What reaches behind the end pads is not counted. A window without
//           an element of x, which a dilation allows, gives 0.
// Gradient  AveragePoolGrad.
// Differs   from ONNX AveragePool: there is no auto_pad. PyTorch asks for pads of at most half a
//           window, has no dilation and counts pads unless told otherwise (count_include_pad).
// Source    PyTorch avg_pool2d; ONNX operators, AveragePool (opset 19).
#include <cmath>

#include "ops/window.h"

namespace bowline::detail::average_pool_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape y, pooled(c.attributes<PoolAttributes>(), c.in(0)));
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const auto& t = c.attributes<PoolAttributes>();
  AveragePoolGradAttributesT g;
  g.window = listed(*t.window());
  g.strides = listed(*t.strides());
  g.pads = listed(*t.pads());
  g.dilations = listed(*t.dilations());
  g.dims = listed(c.shape(c.in(0)));
  g.ceil = t.ceil();
  g.count_pads = t.count_pads();
  return c.din(0, c.add1(Op::AveragePoolGrad, {c.dout(0)}, Attributes::of(g)));
}

// Channels do not see each other.
Status counted_axes(CountedContext& c) { return counted_in_front_of(2, c); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PoolAttributes>();
  const Windows w = windows_of(t, c.shape(0), pool_window(t), c.out_shape(0));
  const std::vector<double> counts = counts_of(w, t.count_pads());
  const auto inputs = static_cast<size_t>(w.inputs()), outputs = static_cast<size_t>(w.outputs());
  const auto magnitude = c.zero_magnitude(0);
  for (size_t plane = 0; plane * outputs < c.out(0).size(); ++plane) {
    each_tap(w, [&](size_t o, size_t, size_t i) {
      const double part = c.in(0)[plane * inputs + i] / counts[o];
      c.out(0)[plane * outputs + o] += part;
      magnitude[plane * outputs + o] += std::abs(part);
    });
  }
}

// A sum over the window, then a division, or a product with a rounded quotient.
Tolerance tolerance(ToleranceContext& c) {
  int64_t window = 1;
  for (const int64_t size : pool_window(c.attributes<PoolAttributes>())) {
    window *= size;
  }
  return Tolerance::of_reduction(window, 2);
}

}  // namespace

extern const OpDef op_average_pool;
const OpDef op_average_pool{
    .name = "AveragePool",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::average_pool_op
