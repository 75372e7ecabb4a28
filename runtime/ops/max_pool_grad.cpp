// MaxPoolGrad: the gradient of MaxPool.
//
//   dx[n, c, i] = sum of dy[n, c, o] over the windows o whose first element equal to y[n, c, o],
//                 in row-major order, is x[n, c, i]
//
// Shapes    x [N, C, spatial...], y and dy of the shape of the pool's output  ->  dx of the shape
//           of x.
// Domain    y is the result of MaxPool of x. NaN is equal to NaN.
// Numerics  accumulated in f32.
// Gradient  none.
#include <cmath>

#include "ops/window.h"

namespace bowline::detail::max_pool_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape y, pooled(c.attributes<PoolAttributes>(), c.in(0)));
  for (const int i : {1, 2}) {
    BOWLINE_TRY(check_shape(format("input {}", i), c.in(i), "the pool's output", y));
  }
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PoolAttributes>();
  const Windows w = windows_of(t, c.shape(0), pool_window(t), c.shape(1));
  const auto inputs = static_cast<size_t>(w.inputs()), outputs = static_cast<size_t>(w.outputs());
  for (size_t plane = 0; plane * outputs < c.in(1).size(); ++plane) {
    std::vector<bool> found(outputs);
    each_tap(w, [&](size_t o, size_t, size_t i) {
      const double x = c.in(0)[plane * inputs + i], y = c.in(1)[plane * outputs + o];
      if (!found[o] && (x == y || (std::isnan(x) && std::isnan(y)))) {
        found[o] = true;
        c.add(0, plane * inputs + i, c.in(2)[plane * outputs + o]);
      }
    });
  }
}

// An element is in at most as many windows as a window has elements.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(window_elements(c.attributes<PoolAttributes>()), 0);
}

}  // namespace

extern const OpDef op_max_pool_grad{
    .name = "MaxPoolGrad",
    .inputs = 3,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::max_pool_grad_op
