// AveragePoolGrad: the gradient of AveragePool.
//
//   dx[n, c, i] = sum of dy[n, c, o] / count(o) over the windows o that contain element i,
//                 with count(o) of AveragePool
//
// Shapes    dy of the shape of the pool's output  ->  dx of the shape `dims` = [N, C, spatial...].
// Numerics  accumulated in f32.
// Gradient  none.
#include "ops/window.h"

namespace bowline::detail::average_pool_grad_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<AveragePoolGradAttributes>();
  BOWLINE_TRY_ASSIGN(const Shape dx, Shape::checked({t.dims()->data(), t.dims()->size()}));
  BOWLINE_TRY_ASSIGN(const Shape y, pooled(t, dx));
  BOWLINE_TRY(check_shape("dy", c.in(0), "the pool's output", y));
  return c.out(0, dx);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<AveragePoolGradAttributes>();
  const Windows w = windows_of(t, c.out_shape(0), pool_window(t), c.shape(0));
  const std::vector<double> counts = counts_of(w, t.count_pads());
  const auto inputs = static_cast<size_t>(w.inputs()), outputs = static_cast<size_t>(w.outputs());
  for (size_t plane = 0; plane * outputs < c.in(0).size(); ++plane) {
    each_tap(w, [&](size_t o, size_t, size_t i) {
      c.add(0, plane * inputs + i, c.in(0)[plane * outputs + o] / counts[o]);
    });
  }
}

// Each term is divided. An element is in at most as many windows as a window has elements.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(window_elements(c.attributes<AveragePoolGradAttributes>()), 2);
}

}  // namespace

extern const OpDef op_average_pool_grad{
    .name = "AveragePoolGrad",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::average_pool_grad_op
