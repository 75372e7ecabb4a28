//! ops(any) Where
// Selects elements of two tensors by bool values. All three operands broadcast by the rules of
// NumPy.
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::where_kernels {
namespace {

void where(Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto condition = broadcast_strides(l.in_shape(0), y);
  const auto a = broadcast_strides(l.in_shape(1), y);
  const auto b = broadcast_strides(l.in_shape(2), y);
  Loops loops(3);
  for (int axis = 0; axis < y.rank(); ++axis) {
    const auto k = static_cast<size_t>(axis);
    loops.add(y[axis], {condition[k], a[k], b[k]});
  }
  loops.finish();
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const auto n = static_cast<uint64_t>(y.elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.in(2)).add(l.out(0)).table(l.table(words));
  push.u32(n).u32(grid.per_group);
  const auto elements = static_cast<double>(n);
  l.dispatch(of_bytes(l.type(), shader::where_1, shader::where_2, shader::where_4, shader::where_8),
             {loops.rank()}, push, grid, elements * 10, elements * (1 + 3 * l.element_bytes()));
}

}  // namespace

BOWLINE_VULKAN_KERNEL(where, .launch = where);

}  // namespace bowline::detail::vulkan::where_kernels
