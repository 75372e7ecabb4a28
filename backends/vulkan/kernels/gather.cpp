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
void launch_gather(Launch& l, int axis, Loops loops) {
  const Shape& data = l.in_shape(0);
  loops.finish();
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.out(0)).add(l.step()).table(l.table(words));
  push.u32(n).u32(grid.per_group).u32(static_cast<uint64_t>(data[axis]));
  push.u32(static_cast<uint64_t>(data.elements(axis + 1, data.rank()))).u32(l.node());
  l.dispatch(
      of_bytes(l.type(), shader::gather_1, shader::gather_2, shader::gather_4, shader::gather_8),
      {loops.rank()}, push, grid, static_cast<double>(n) * 20,
      static_cast<double>(n) * (4 + 2 * l.element_bytes()));
}

void gather(Launch& l) {
  const Shape& data = l.in_shape(0);
  const int axis = positive_axis(l.attributes<GatherAttributes>().axis(), data.rank());
  const int64_t inner = data.elements(axis + 1, data.rank());
  Loops loops(2);
  loops.add(data.elements(0, axis), {data[axis] * inner, 0});
  loops.add(l.in_shape(1).elements(), {0, 1});
  loops.add(inner, {1, 0});
  launch_gather(l, axis, loops);
}

void gather_elements(Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto from = strides_of(l.in_shape(0));
  const auto own = strides_of(y);
  const int axis = positive_axis(l.attributes<GatherAttributes>().axis(), y.rank());
  Loops loops(2);
  for (int a = 0; a < y.rank(); ++a) {
    const auto i = static_cast<size_t>(a);
    loops.add(y[a], {a == axis ? 0 : from[i], own[i]});
  }
  launch_gather(l, axis, loops);
}

void one_hot(Launch& l) {
  const Shape& y = l.out_shape(0);
  const int axis = positive_axis(l.attributes<OneHotAttributes>().axis(), y.rank());
  const int64_t inner = y.elements(axis + 1, y.rank());
  Loops loops(2);
  loops.add(y.elements(0, axis), {inner, 0});
  loops.add(y[axis], {0, 1});
  loops.add(inner, {1, 0});
  loops.finish();
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const auto n = static_cast<uint64_t>(y.elements());
  const Grid grid = l.over_elements(n);
  const uint64_t one = stored_bits(l.type(), 1);
  Push push;
  push.add(l.in(0)).add(l.out(0)).table(l.table(words)).u32(n).u32(grid.per_group);
  push.u32(static_cast<uint64_t>(y[axis])).u32(one).u32(one >> 32);
  l.dispatch(of_bytes(l.type(), shader::one_hot_1, shader::one_hot_2, shader::one_hot_4,
                      shader::one_hot_8),
             {loops.rank()}, push, grid, static_cast<double>(n) * 20,
             static_cast<double>(n) * l.element_bytes());
}

void copy_data(Launch& l) {
  const Place from = l.in_place(0);
  const Place to = l.out_place(0);
  if (from.address != to.address) {
    l.copy(to, from, l.out_bytes(0));
    l.barrier();
  }
}

uint32_t reduce_shader(DType type) {
  switch (type) {
    case DType::f16:
      return shader::scatter_reduce_f16;
    case DType::bf16:
      return shader::scatter_reduce_bf16;
    case DType::i8:
      return shader::scatter_reduce_i8;
    case DType::u8:
      return shader::scatter_reduce_u8;
    case DType::i32:
      return shader::scatter_reduce_i32;
    case DType::i64:
      return shader::scatter_reduce_i64;
    default:
      return shader::scatter_reduce_f32;
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
  Loops loops(3);
  for (int a = 0; a < updates.rank(); ++a) {
    const auto i = static_cast<size_t>(a);
    if (a != axis) {
      loops.add(updates[a], {strides[0][i], strides[1][i], strides[2][i]});
    }
  }
  loops.finish();
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const uint32_t table = l.table(words);
  const auto count = static_cast<uint64_t>(updates[axis]);
  const uint64_t lines = static_cast<uint64_t>(updates.elements()) / count;
  for (uint64_t first = 0; first < count; first += kMaxIterations) {
    const uint64_t end = std::min<uint64_t>(count, first + kMaxIterations);
    Push push;
    push.add(y).add(l.in(1)).add(l.in(2)).add(l.step()).table(table);
    push.u32(lines).u32(first).u32(end).u32(static_cast<uint64_t>(data[axis]));
    for (const Strides& s : strides) {
      push.u32(static_cast<uint64_t>(s[static_cast<size_t>(axis)]));
    }
    push.u32(l.node());
    const double flops = static_cast<double>(lines * (end - first)) * 20;
    const Grid grid = l.over_single_elements(lines);
    if (reduction == ScatterReduction::none) {
      l.dispatch(of_bytes(l.type(), shader::scatter_1, shader::scatter_2, shader::scatter_4,
                          shader::scatter_8),
                 {loops.rank()}, push, grid, flops, flops);
    } else {
      l.dispatch(reduce_shader(l.type()), {loops.rank(), static_cast<uint32_t>(reduction)}, push,
                 grid, flops, flops);
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

BOWLINE_VULKAN_KERNEL(gather, .launch = gather);
BOWLINE_VULKAN_KERNEL(gather_elements, .launch = gather_elements);
BOWLINE_VULKAN_KERNEL(one_hot, .launch = one_hot);
BOWLINE_VULKAN_KERNEL(scatter_elements, .launch = scatter_elements, .workspace = scatter_workspace);

}  // namespace bowline::detail::vulkan::gather_kernels
