// AveragePool: the mean of each window.
//
//   y[n, c, o] = (sum over k of x[n, c, o * stride + k * dilation - pad]) / count(o)
//   k runs over the window elements inside x. count(o) is the number of these elements; with
//   `count_pads`, elements in the pads count too.
//
// Shapes    x [N, C, spatial...] of rank 3, 4 or 5  ->  y [N, C, floor((spatial + pads - dilation *
//           (window - 1) - 1) / stride) + 1 ...]. With `ceil`, the quotient is rounded up, without
//           windows that start in or behind the end pads.
// Domain    pads are smaller than the extent of the window, dilation * (window - 1) + 1.
// Numerics  accumulated in f32. Elements behind the end pads are never counted. With dilation, a
//           window can contain no element of x; its result is 0.
// Gradient  AveragePoolGrad.
// Differs   from ONNX AveragePool: auto_pad does not exist. PyTorch limits pads to half a window,
//           has no dilation, and counts pads by default (count_include_pad).
// Source    PyTorch avg_pool2d; ONNX operators, AveragePool (opset 19).
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

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PoolAttributes>();
  const Windows w = windows_of(t, c.shape(0), pool_window(t), c.out_shape(0));
  const std::vector<double> counts = counts_of(w, t.count_pads());
  const auto inputs = static_cast<size_t>(w.inputs()), outputs = static_cast<size_t>(w.outputs());
  for (size_t plane = 0; plane * outputs < c.out(0).size(); ++plane) {
    each_tap(w, [&](size_t o, size_t, size_t i) {
      c.add(0, plane * outputs + o, c.in(0)[plane * inputs + i] / counts[o]);
    });
  }
}

// A sum over the window, then a division, or a product with a rounded reciprocal.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(window_elements(c.attributes<PoolAttributes>()), 2);
}

}  // namespace

extern const OpDef op_average_pool{
    .name = "AveragePool",
    .infer = infer,
    .counted = counted_in_front_of<2>,  // channels are independent
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::average_pool_op
