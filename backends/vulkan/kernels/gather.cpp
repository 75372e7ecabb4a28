//! ops(any) Gather GatherElements OneHot ScatterElements
// Elements along an axis selected by indices, and the reverse. Negative indices count from the end.
#include <algorithm>

#include "base/float16.h"
#include "convert.h"
#include "core/indices.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::gather_kernels {
namespace {

void gather(Launch& l) {
  const GatherLoops g = gather_loops_of(l.record());
  const Grid grid = l.over_elements(l.out_shape(0).elements());
  Push push;
  push.add(l.in(0), l.in(1), l.out(0), l.step())
      .table(l.table(words_of(g.loops)))
      .u32(grid.elements, grid.per_group, g.n, g.stride, l.node());
  l.dispatch(shader::gather, {rank_of(g.loops)}, push, grid,
             {static_cast<double>(grid.elements) * 20,
              static_cast<double>(grid.elements) * (4 + 2 * l.element_bytes())});
}

void one_hot(Launch& l) {
  const Shape& y = l.out_shape(0);
  const int axis = positive_axis(l.attributes<OneHotAttributes>().axis(), y.rank());
  const int64_t inner = y.elements(axis + 1, y.rank());
  Loops<2> loops;
  loops.add(y.elements(0, axis), {inner, 0});
  loops.add(y[axis], {0, 1});
  loops.add(inner, {1, 0});
  const Grid grid = l.over_elements(y.elements());
  const uint64_t one = stored_bits(l.type(), 1);
  Push push;
  push.add(l.in(0), l.out(0))
      .table(l.table(words_of(loops)))
      .u32(grid.elements, grid.per_group, y[axis], one, one >> 32);
  l.dispatch(shader::one_hot, {rank_of(loops)}, push, grid, l.each(grid.elements, 20, 1));
}

void copy_data(Launch& l) {
  const Place from = l.in_place(0);
  const Place to = l.out_place(0);
  if (from.address != to.address) {
    l.copy(to, from, l.out_bytes(0));
    l.barrier();
  }
}

// One invocation per line along the axis. Long lines are divided into consecutive dispatches.
void scatter(Launch& l, VkDeviceAddress y, ScatterReduction reduction) {
  const ScatterLines s = scatter_lines_of(l.record());
  const uint64_t lines = s.lines.elements();
  const uint32_t table = l.table(words_of(s.lines));
  for (uint64_t first = 0; first < s.count && lines > 0; first += kMaxIterations) {
    const uint64_t end = std::min<uint64_t>(s.count, first + kMaxIterations);
    Push push;
    push.add(y, l.in(1), l.in(2), l.step()).table(table).u32(lines, first, end, s.n);
    push.u32(s.steps[0], s.steps[1], s.steps[2], l.node());
    const double flops = static_cast<double>(lines * (end - first)) * 20;
    const Grid grid = l.over_single_elements(lines);
    if (reduction == ScatterReduction::none) {
      l.dispatch(shader::scatter, {rank_of(s.lines)}, push, grid, {flops, flops});
    } else {
      l.dispatch(shader::scatter_reduce, {rank_of(s.lines), static_cast<uint32_t>(reduction)}, push,
                 grid, {flops, flops});
    }
    if (end < s.count) {
      l.barrier();
    }
  }
}

// f16 and bf16 are combined in f32; the workspace holds the data as f32.
void scatter_elements(Launch& l) {
  const ScatterReduction reduction = l.attributes<ScatterElementsAttributes>().reduction();
  if (scatter_wide_bytes(l.record()) == 0) {
    copy_data(l);
    return scatter(l, l.out(0), reduction);
  }
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  convert(l, l.in(0), l.type(), l.workspace(), DType::f32, n);
  l.barrier();
  scatter(l, l.workspace(), reduction);
  l.barrier();
  convert(l, l.workspace(), DType::f32, l.out(0), l.type(), n);
}

uint64_t scatter_workspace(const NodeView& node) { return scatter_wide_bytes(node.query); }

}  // namespace

BOWLINE_KERNEL(gather, .launch = gather);
BOWLINE_KERNEL(gather_elements, .launch = gather);
BOWLINE_KERNEL(one_hot, .launch = one_hot);
BOWLINE_KERNEL(scatter_elements, .launch = scatter_elements, .workspace = scatter_workspace);

}  // namespace bowline::detail::vulkan::gather_kernels
