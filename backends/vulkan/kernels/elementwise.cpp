//! elementwise
//! elementwise(f16, bf16)
// Operators with formulas (runtime/ops/formulas); those of two operands broadcast (numpy rules).
#include "generated/functions.h"
#include "index.h"
#include "kernel.h"

namespace bowline::vulkan {
namespace {

// For the estimate of the time: most of it where a function computes.
constexpr double kFlops = 40;

void same_shape(Launch& l, const FunctionCall& f) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(l.inputs() - 1)).add(l.out(0)).u32(n).u32(grid.per_group);
  push.f32(f.p).f32(f.q);
  const auto elements = static_cast<double>(n);
  l.dispatch(
      of_type(l.type(), shader::elementwise_f32, shader::elementwise_f16, shader::elementwise_bf16),
      {static_cast<uint32_t>(f.function)}, push, grid, elements * kFlops,
      elements * l.element_bytes() * static_cast<double>(l.inputs() + 1));
}

void broadcast(Launch& l, const FunctionCall& f) {
  const Shape& y = l.out_shape(0);
  const auto a = broadcast_strides(l.in_shape(0), y);
  const auto b = broadcast_strides(l.in_shape(1), y);
  Loops loops(2);
  for (int axis = 0; axis < y.rank(); ++axis) {
    loops.add(y[axis], {a[static_cast<size_t>(axis)], b[static_cast<size_t>(axis)]});
  }
  loops.finish();
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const auto n = static_cast<uint64_t>(y.elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.out(0)).table(l.table(words)).u32(n).u32(grid.per_group);
  l.dispatch(
      of_type(l.type(), shader::broadcast_f32, shader::broadcast_f16, shader::broadcast_bf16),
      {static_cast<uint32_t>(f.function), loops.rank()}, push, grid,
      static_cast<double>(n) * kFlops, static_cast<double>(n) * 3 * l.element_bytes());
}

void elementwise(Launch& l) {
  const FunctionCall f = function_of(l.op(), l.attributes());
  const int64_t n = l.out_shape(0).elements();
  if (l.in_shape(0).elements() == n && l.in_shape(l.inputs() - 1).elements() == n) {
    same_shape(l, f);
  } else {
    broadcast(l, f);
  }
}

}  // namespace

BOWLINE_VULKAN_KERNEL(elementwise, .launch = elementwise);
BOWLINE_VULKAN_KERNEL(elementwise_f16, .launch = elementwise);
BOWLINE_VULKAN_KERNEL(elementwise_bf16, .launch = elementwise);

}  // namespace bowline::vulkan
