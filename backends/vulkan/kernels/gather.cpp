//! ops(any) Gather GatherElements OneHot ScatterElements
// Elements along an axis selected by indices, and the reverse. Negative indices count from the end.
#include <algorithm>

#include "base/float16.h"
#include "convert.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::gather_kernels {
namespace {

// `axis` is the indexed axis of the data. The loops run over y, with the strides of data and
// indices.
void launch_gather(Launch& l, int axis, const Loops<2>& loops) {
  const Shape& data = l.in_shape(0);
  const Grid grid = l.over_elements(l.out_shape(0).elements());
  Push push;
  push.add(l.in(0), l.in(1), l.out(0), l.step())
      .table(l.table(words_of(loops)))
      .u32(grid.elements, grid.per_group, data[axis]);
  push.u32(data.elements(axis + 1, data.rank()), l.node());
  l.dispatch(shader::gather, {rank_of(loops)}, push, grid,
             {static_cast<double>(grid.elements) * 20,
              static_cast<double>(grid.elements) * (4 + 2 * l.element_bytes())});
}

void gather(Launch& l) {
  const Shape& data = l.in_shape(0);
  const int axis = positive_axis(l.attributes<GatherAttributes>().axis(), data.rank());
  const int64_t inner = data.elements(axis + 1, data.rank());
  Loops<2> loops;
  loops.add(data.elements(0, axis), {data[axis] * inner, 0});
  loops.add(l.in_shape(1).elements(), {0, 1});
  loops.add(inner, {1, 0});
  launch_gather(l, axis, loops);
}

void gather_elements(Launch& l) {
  const Shape& y = l.out_shape(0);
  const int axis = positive_axis(l.attributes<GatherAttributes>().axis(), y.rank());
  Strides from = strides_of(l.in_shape(0));
  from[static_cast<size_t>(axis)] = 0;
  launch_gather(l, axis, Loops<2>(y, {from, strides_of(y)}));
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
  const Shape& data = l.in_shape(0);
  const Shape& updates = l.in_shape(2);
  if (updates.elements() == 0) {
    return;
  }
  const int axis = positive_axis(l.attributes<ScatterElementsAttributes>().axis(), data.rank());
  const std::array strides = {strides_of(data), broadcast_strides(l.in_shape(1), updates),
                              strides_of(updates)};
  Shape lines_of = updates;
  lines_of[axis] = 1;
  const Loops<3> loops(lines_of, strides);
  const uint32_t table = l.table(words_of(loops));
  const auto count = static_cast<uint64_t>(updates[axis]);
  const uint64_t lines = static_cast<uint64_t>(updates.elements()) / count;
  for (uint64_t first = 0; first < count; first += kMaxIterations) {
    const uint64_t end = std::min<uint64_t>(count, first + kMaxIterations);
    Push push;
    push.add(y, l.in(1), l.in(2), l.step()).table(table).u32(lines, first, end, data[axis]);
    for (const Strides& s : strides) {
      push.u32(s[static_cast<size_t>(axis)]);
    }
    push.u32(l.node());
    const double flops = static_cast<double>(lines * (end - first)) * 20;
    const Grid grid = l.over_single_elements(lines);
    if (reduction == ScatterReduction::none) {
      l.dispatch(shader::scatter, {rank_of(loops)}, push, grid, {flops, flops});
    } else {
      l.dispatch(shader::scatter_reduce, {rank_of(loops), static_cast<uint32_t>(reduction)}, push,
                 grid, {flops, flops});
    }
    if (end < count) {
      l.barrier();
    }
  }
}

bool is_wide(DType type, ScatterReduction reduction) {
  return reduction != ScatterReduction::none && (type == DType::f16 || type == DType::bf16);
}

// f16 and bf16 are combined in f32; the workspace holds the data as f32.
void scatter_elements(Launch& l) {
  const ScatterReduction reduction = l.attributes<ScatterElementsAttributes>().reduction();
  if (!is_wide(l.type(), reduction)) {
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

uint64_t scatter_workspace(const NodeView& node) {
  return is_wide(node.query.type, node.attributes<ScatterElementsAttributes>().reduction())
             ? static_cast<uint64_t>(node.out(0).elements()) * sizeof(float)
             : 0;
}

}  // namespace

BOWLINE_KERNEL(gather, .launch = gather);
BOWLINE_KERNEL(gather_elements, .launch = gather_elements);
BOWLINE_KERNEL(one_hot, .launch = one_hot);
BOWLINE_KERNEL(scatter_elements, .launch = scatter_elements, .workspace = scatter_workspace);

}  // namespace bowline::detail::vulkan::gather_kernels
