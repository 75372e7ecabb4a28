//! elementwise
//! elementwise(f16, bf16)
//! elementwise(i8, u8, i32, i64, boolean)
// Operators with formulas (runtime/ops/formulas). Two operands broadcast by the rules of NumPy; a
// third operand has the shape of the result.
#include "generated/functions.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::elementwise_kernels {
namespace {

// For the time estimate: an upper bound for most functions.
constexpr double kFlops = 40;

double bytes_of(const Launch& l) {
  double bytes = static_cast<double>(l.out_bytes(0));
  for (size_t i = 0; i < l.inputs(); ++i) {
    bytes += static_cast<double>(l.in_shape(i).elements()) * l.element_bytes();
  }
  return bytes;
}

// A missing operand is replaced by the first.
VkDeviceAddress input(const Launch& l, size_t i) { return l.in(i < l.inputs() ? i : 0); }

uint32_t same_shape_shader(const Launch& l, bool compares) {
  return compares ? of_type(l.type(), shader::elementwise_f32_truth, shader::elementwise_f16_truth,
                            shader::elementwise_bf16_truth)
                  : of_type(l.type(), shader::elementwise_f32_same, shader::elementwise_f16_same,
                            shader::elementwise_bf16_same);
}

uint32_t broadcast_shader(const Launch& l, bool compares) {
  return compares ? of_type(l.type(), shader::broadcast_f32_truth, shader::broadcast_f16_truth,
                            shader::broadcast_bf16_truth)
                  : of_type(l.type(), shader::broadcast_f32_same, shader::broadcast_f16_same,
                            shader::broadcast_bf16_same);
}

uint32_t whole_shader(const Launch& l, bool compares) {
  switch (size_of(l.type())) {
    case 1:
      return compares ? shader::whole_1_truth : shader::whole_1_same;
    case 4:
      return compares ? shader::whole_4_truth : shader::whole_4_same;
    default:
      return compares ? shader::whole_8_truth : shader::whole_8_same;
  }
}

void same_shape(Launch& l, const FunctionCall& f) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(input(l, 1)).add(input(l, 2)).add(l.out(0)).u32(n).u32(grid.per_group);
  push.f32(f.p).f32(f.q);
  l.dispatch(same_shape_shader(l, is_comparison(f.function)), {static_cast<uint32_t>(f.function)},
             push, grid, static_cast<double>(n) * kFlops, bytes_of(l));
}

// The loop over the result with the strides of operands 0 and 1.
Loops broadcast_loops(const Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto a = broadcast_strides(l.in_shape(0), y);
  const auto b = broadcast_strides(l.in_shape(l.inputs() > 1 ? 1 : 0), y);
  Loops loops(2);
  for (int axis = 0; axis < y.rank(); ++axis) {
    loops.add(y[axis], {a[static_cast<size_t>(axis)], b[static_cast<size_t>(axis)]});
  }
  loops.finish();
  return loops;
}

uint32_t table_of(Launch& l, const Loops& loops) {
  std::vector<uint32_t> words;
  loops.append_to(&words);
  return l.table(words);
}

void broadcast(Launch& l, const FunctionCall& f) {
  const Loops loops = broadcast_loops(l);
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(input(l, 2)).add(l.out(0)).table(table_of(l, loops));
  push.u32(n).u32(grid.per_group).u32(l.inputs() > 2 ? 1 : 0);
  l.dispatch(broadcast_shader(l, is_comparison(f.function)),
             {static_cast<uint32_t>(f.function), loops.rank()}, push, grid,
             static_cast<double>(n) * kFlops, bytes_of(l));
}

void elementwise(Launch& l) {
  const FunctionCall f = function_of(l.op(), l.attributes());
  const int64_t n = l.out_shape(0).elements();
  if (l.in_shape(0).elements() == n && l.in_shape(l.inputs() > 1 ? 1 : 0).elements() == n) {
    same_shape(l, f);
  } else {
    broadcast(l, f);
  }
}

// Integers cannot be divided by 0.
void check_divisors(Launch& l) {
  const auto n = l.out_shape(0).elements() == 0 ? 0 : l.in_shape(1).elements();
  const Grid grid = l.over_elements(static_cast<uint64_t>(n));
  Push push;
  push.add(l.in(1)).add(l.step()).u32(static_cast<uint64_t>(n)).u32(grid.per_group).u32(l.node());
  const uint32_t shader = size_of(l.type()) == 1   ? shader::divisor_1
                          : size_of(l.type()) == 4 ? shader::divisor_4
                                                   : shader::divisor_8;
  const auto elements = static_cast<double>(n);
  l.dispatch(shader, {}, push, grid, elements, elements * l.element_bytes());
  l.barrier();  // the quotients may overwrite the divisors
}

// Integers and bool.
void whole(Launch& l) {
  const FunctionCall f = function_of(l.op(), l.attributes());
  if (divides(f.function)) {
    check_divisors(l);
  }
  const Loops loops = broadcast_loops(l);
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  const uint32_t kind = l.type() == DType::boolean ? 2 : l.type() == DType::u8 ? 1 : 0;
  Push push;
  push.add(l.in(0)).add(input(l, 1)).add(l.out(0)).table(table_of(l, loops));
  push.u32(n).u32(grid.per_group);
  l.dispatch(whole_shader(l, is_comparison(f.function)),
             {static_cast<uint32_t>(f.function), loops.rank(), kind}, push, grid,
             static_cast<double>(n) * 10, bytes_of(l));
}

const char* without_int64(const NodeView& node) {
  return node.physical.has_int64
             ? nullptr
             : "Its driver lacks the feature shaderInt64, which numbers of i64 need.";
}

}  // namespace

BOWLINE_VULKAN_KERNEL(elementwise, .launch = elementwise);
BOWLINE_VULKAN_KERNEL(elementwise_f16, .launch = elementwise);
BOWLINE_VULKAN_KERNEL(elementwise_bf16, .launch = elementwise);
BOWLINE_VULKAN_KERNEL(elementwise_i8, .launch = whole);
BOWLINE_VULKAN_KERNEL(elementwise_u8, .launch = whole);
BOWLINE_VULKAN_KERNEL(elementwise_i32, .launch = whole);
BOWLINE_VULKAN_KERNEL(elementwise_i64, .launch = whole, .refusal = without_int64);
BOWLINE_VULKAN_KERNEL(elementwise_boolean, .launch = whole);

}  // namespace bowline::detail::vulkan::elementwise_kernels
