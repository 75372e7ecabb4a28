//! ops(any) Where
// Selects elements of two tensors by bool values. All three operands broadcast by the rules of
// NumPy.
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::where_kernels {
namespace {

void where(Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto loops = Loops<3>::broadcast(y, {&l.in_shape(0), &l.in_shape(1), &l.in_shape(2)});
  const Grid grid = l.over_elements(y.elements());
  Push push;
  push.add(l.in(0), l.in(1), l.in(2), l.out(0))
      .table(l.table(words_of(loops)))
      .u32(grid.elements, grid.per_group);
  const auto elements = static_cast<double>(grid.elements);
  l.dispatch(shader::where, {rank_of(loops)}, push, grid,
             {elements * 10, elements * (1 + 3 * l.element_bytes())});
}

}  // namespace

BOWLINE_KERNEL(where, .launch = where);

}  // namespace bowline::detail::vulkan::where_kernels
