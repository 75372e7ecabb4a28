//! ops(f32, f16, bf16) MaxPool MaxPoolGrad AveragePool AveragePoolGrad
// Pools, one result per invocation.
#include "windows.h"

namespace bowline::detail::vulkan::pool_kernels {
namespace {

template <class Table>
Windows windows(const Attributes& attributes, const Shape& x, const Shape& y) {
  const auto& t = attributes.as<Table>();
  return windows_of(t, x, pool_window(t), y);
}

struct Operands {
  VkDeviceAddress x, y, dy, dx;
};

void pool(Launch& l, uint32_t shader, const Windows& w, const Operands& o, bool count_pads,
          int64_t iterations) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_single_elements(n);
  Push push;
  push.add(o.x).add(o.y).add(o.dy).add(o.dx).table(window_table(l, w));
  push.u32(n).u32(grid.per_group).u32(count_pads ? 1 : 0);
  l.dispatch(shader, {}, push, grid, static_cast<double>(n) * static_cast<double>(iterations) * 10,
             static_cast<double>(n) * l.element_bytes());
}

void max_pool(Launch& l) {
  const Windows w = windows<PoolAttributes>(l.attributes(), l.in_shape(0), l.out_shape(0));
  pool(l, of_type(l.type(), shader::pool_max_f32, shader::pool_max_f16, shader::pool_max_bf16), w,
       {l.in(0), l.out(0), 0, 0}, false, w.window());
}

void max_pool_grad(Launch& l) {
  const Windows w = windows<PoolAttributes>(l.attributes(), l.in_shape(0), l.in_shape(1));
  pool(l,
       of_type(l.type(), shader::pool_max_grad_f32, shader::pool_max_grad_f16,
               shader::pool_max_grad_bf16),
       w, {l.in(0), l.in(1), l.in(2), l.out(0)}, false, w.window() * w.window());
}

void average_pool(Launch& l) {
  const Windows w = windows<PoolAttributes>(l.attributes(), l.in_shape(0), l.out_shape(0));
  pool(l,
       of_type(l.type(), shader::pool_average_f32, shader::pool_average_f16,
               shader::pool_average_bf16),
       w, {l.in(0), l.out(0), 0, 0}, l.attributes<PoolAttributes>().count_pads(), w.window());
}

void average_pool_grad(Launch& l) {
  const Windows w =
      windows<AveragePoolGradAttributes>(l.attributes(), l.out_shape(0), l.in_shape(0));
  pool(l,
       of_type(l.type(), shader::pool_average_grad_f32, shader::pool_average_grad_f16,
               shader::pool_average_grad_bf16),
       w, {0, 0, l.in(0), l.out(0)}, l.attributes<AveragePoolGradAttributes>().count_pads(),
       2 * w.window());
}

// Loops over the window; gradients loop over the windows of all outputs that contain the element.
template <class Table, bool kGradient>
const char* refusal(const NodeView& node) {
  const auto& t = node.attributes<Table>();
  const Shape& x = kGradient ? node.out(0) : node.in(0);
  const Windows w = windows_of(t, x, pool_window(t), x);
  const int64_t once = window_iterations(w) + 3 * w.window();
  const int64_t iterations = kGradient ? once * (1 + once) : once;
  return node.physical.is_software() && iterations > kMaxIterations
             ? "A window has more elements than the loops of a software device run."
             : nullptr;
}

}  // namespace

#define BOWLINE_POOL(stem, refuse_it)                                      \
  BOWLINE_VULKAN_KERNEL(stem, .launch = stem, .refusal = refuse_it);       \
  BOWLINE_VULKAN_KERNEL(stem##_f16, .launch = stem, .refusal = refuse_it); \
  BOWLINE_VULKAN_KERNEL(stem##_bf16, .launch = stem, .refusal = refuse_it)
constexpr auto kOfWindow = refusal<PoolAttributes, false>;
constexpr auto kOfGradient = refusal<PoolAttributes, true>;
constexpr auto kOfAverageGradient = refusal<AveragePoolGradAttributes, true>;
BOWLINE_POOL(max_pool, kOfWindow);
BOWLINE_POOL(max_pool_grad, kOfGradient);
BOWLINE_POOL(average_pool, kOfWindow);
BOWLINE_POOL(average_pool_grad, kOfAverageGradient);
#undef BOWLINE_POOL

}  // namespace bowline::detail::vulkan::pool_kernels
