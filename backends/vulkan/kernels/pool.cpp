//! ops(f32, f16, bf16) MaxPool MaxPoolGrad AveragePool AveragePoolGrad
// Pools, one result per invocation.
#include "windows.h"

namespace bowline::detail::vulkan::pool_kernels {
namespace {

struct Operands {
  VkDeviceAddress x, y, dy, dx;
};

// `iterations`: of a window of this size.
template <class Table>
void pool(Launch& l, const shader::ByType& shader, const Shape& x, const Shape& y,
          const Operands& o, int64_t (*iterations)(int64_t window)) {
  const auto& t = l.attributes<Table>();
  const Windows w = windows_of(t, x, pool_window(t), y);
  const Grid grid = l.over_single_elements(l.out_shape(0).elements());
  Push push;
  push.add(o.x, o.y, o.dy, o.dx).table(window_table(l, w));
  push.u32(grid.elements, grid.per_group, t.count_pads());
  l.dispatch(shader, {}, push, grid,
             l.each(grid.elements, static_cast<double>(iterations(w.window())) * 10, 1));
}

void max_pool(Launch& l) {
  pool<PoolAttributes>(l, shader::pool_max, l.in_shape(0), l.out_shape(0),
                       {l.in(0), l.out(0), 0, 0}, [](int64_t n) { return n; });
}

void max_pool_grad(Launch& l) {
  pool<PoolAttributes>(l, shader::pool_max_grad, l.in_shape(0), l.in_shape(1),
                       {l.in(0), l.in(1), l.in(2), l.out(0)}, [](int64_t n) { return n * n; });
}

void average_pool(Launch& l) {
  pool<PoolAttributes>(l, shader::pool_average, l.in_shape(0), l.out_shape(0),
                       {l.in(0), l.out(0), 0, 0}, [](int64_t n) { return n; });
}

void average_pool_grad(Launch& l) {
  pool<AveragePoolGradAttributes>(l, shader::pool_average_grad, l.out_shape(0), l.in_shape(0),
                                  {0, 0, l.in(0), l.out(0)}, [](int64_t n) { return 2 * n; });
}

// Loops over the window; gradients loop over the windows of all outputs that contain the element.
template <class Table, bool kGradient>
const char* refusal(const NodeView& node) {
  const auto& t = node.attributes<Table>();
  const Shape& x = kGradient ? node.out(0) : node.in(0);
  const Windows w = windows_of(t, x, pool_window(t), x);
  const int64_t once = window_iterations(w) + 3 * w.window();
  return refuse_loops(node, kGradient ? once * (1 + once) : once,
                      "A window has more elements than the loops of a software device run.");
}

}  // namespace

constexpr auto kOfWindow = refusal<PoolAttributes, false>;
constexpr auto kOfGradient = refusal<PoolAttributes, true>;
constexpr auto kOfAverageGradient = refusal<AveragePoolGradAttributes, true>;
BOWLINE_KERNELS_OF_FLOATS(max_pool, .launch = max_pool, .refusal = kOfWindow);
BOWLINE_KERNELS_OF_FLOATS(max_pool_grad, .launch = max_pool_grad, .refusal = kOfGradient);
BOWLINE_KERNELS_OF_FLOATS(average_pool, .launch = average_pool, .refusal = kOfWindow);
BOWLINE_KERNELS_OF_FLOATS(average_pool_grad, .launch = average_pool_grad,
                          .refusal = kOfAverageGradient);

}  // namespace bowline::detail::vulkan::pool_kernels
