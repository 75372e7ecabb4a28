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

Work work_of(const Launch& l, double flops) {
  return {static_cast<double>(l.out_shape(0).elements()) * flops, bytes_of(l)};
}

// The loop over the result with the strides of operands 0 and 1.
Loops<2> broadcast_loops(const Launch& l) {
  return Loops<2>::broadcast(l.out_shape(0), {&l.in_shape(0), &l.in_shape(l.inputs() > 1 ? 1 : 0)});
}

void elementwise(Launch& l) {
  const FunctionCall f = function_of(l.op(), l.attributes());
  const bool compares = is_comparison(f.function);
  const auto function = static_cast<uint32_t>(f.function);
  const int64_t n = l.out_shape(0).elements();
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0), input(l, 1), input(l, 2), l.out(0));
  if (l.in_shape(0).elements() == n && l.in_shape(l.inputs() > 1 ? 1 : 0).elements() == n) {
    push.u32(n, grid.per_group).f32(f.p).f32(f.q);
    l.dispatch(compares ? shader::elementwise_truth : shader::elementwise_same, {function}, push,
               grid, work_of(l, kFlops));
  } else {
    const Loops<2> loops = broadcast_loops(l);
    push.table(l.table(words_of(loops))).u32(n, grid.per_group, l.inputs() > 2);
    l.dispatch(compares ? shader::broadcast_truth : shader::broadcast_same,
               {function, rank_of(loops)}, push, grid, work_of(l, kFlops));
  }
}

// Integers cannot be divided by 0.
void check_divisors(Launch& l) {
  const Grid grid = l.over_elements(l.out_shape(0).elements() == 0 ? 0 : l.in_shape(1).elements());
  Push push;
  push.add(l.in(1), l.step()).u32(grid.elements, grid.per_group, l.node());
  l.dispatch(shader::divisor, {}, push, grid, l.each(grid.elements, 1, 1));
  l.barrier();  // the quotients may overwrite the divisors
}

// Integers and bool.
void whole(Launch& l) {
  const FunctionCall f = function_of(l.op(), l.attributes());
  if (divides(f.function)) {
    check_divisors(l);
  }
  const Loops<2> loops = broadcast_loops(l);
  const Grid grid = l.over_elements(l.out_shape(0).elements());
  const uint32_t kind = l.type() == DType::boolean ? 2 : l.type() == DType::u8 ? 1 : 0;
  Push push;
  push.add(l.in(0), input(l, 1), l.out(0)).table(l.table(words_of(loops)));
  push.u32(grid.elements, grid.per_group);
  l.dispatch(is_comparison(f.function) ? shader::whole_truth : shader::whole_same,
             {static_cast<uint32_t>(f.function), rank_of(loops), kind}, push, grid, work_of(l, 10));
}

const char* without_int64(const NodeView& node) {
  if (node.physical.has_int64 || node.query.type != DType::i64) {
    return nullptr;
  }
  return node.physical.is_int64_switched_off
             ? "Values of i64 need the feature shaderInt64, which is switched off on this device. "
               "'bowline devices' gives the reason."
             : "Its driver lacks the feature shaderInt64, which values of i64 need.";
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(elementwise, .launch = elementwise);
BOWLINE_KERNELS_OF_INTEGERS(elementwise, .launch = whole, .refusal = without_int64);
BOWLINE_KERNEL(elementwise_boolean, .launch = whole);

}  // namespace bowline::detail::vulkan::elementwise_kernels
