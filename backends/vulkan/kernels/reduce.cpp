//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo GlobalAveragePool
// Sums over axes, in a fixed order.
#include <algorithm>

#include "column_sums.h"
#include "groups.h"

namespace bowline::detail::vulkan::reduce_kernels {
namespace {

Axes reduced_axes(Op op, const Attributes& attributes, const Shape& x, const Shape& y) {
  if (op == Op::SumTo) {
    return stretched_axes(x, y);
  }
  if (op == Op::GlobalAveragePool) {
    Axes spatial{};
    std::fill(spatial.begin() + 2, spatial.begin() + x.rank(), true);
    return spatial;
  }
  const auto* axes = attributes.as<ReduceAttributes>().axes();
  return named_axes({axes->data(), axes->size()}, x.rank());
}

bool last_is_reduced(const Shape& x, const Axes& reduced) {
  bool last = false;
  for (int axis = 0; axis < x.rank(); ++axis) {
    last = x[axis] == 1 ? last : reduced[static_cast<size_t>(axis)];
  }
  return last;
}

constexpr int64_t kWide = 8;

// True if groups of kWide outputs have neighbouring terms, at multiples of kWide elements.
bool is_wide(const ElementGroups& g) {
  if (g.kept.rank == 0 || g.kept.sizes[g.kept.rank - 1] % kWide != 0) {
    return false;
  }
  for (int axis = 0; axis < g.kept.rank; ++axis) {
    const int64_t stride = g.kept.strides[0][axis];
    if (axis + 1 == g.kept.rank ? stride != 1 : stride % kWide != 0) {
      return false;
    }
  }
  return std::all_of(g.gone.strides[0], g.gone.strides[0] + g.gone.rank,
                     [](int64_t stride) { return stride % kWide == 0; });
}

// Parts of the terms of each output, if the outputs alone are too few invocations for a GPU.
ColumnParts parts_of(const PhysicalDevice& physical, const ElementGroups& g, bool rows) {
  if (rows || physical.uses_cpu_kernels()) {
    return {1, g.length};
  }
  return column_parts(g.length, g.outputs / (is_wide(g) ? kWide : 1));
}

uint64_t workspace(const NodeView& node) {
  const Shape& x = node.in(0);
  const Axes reduced = reduced_axes(node.query.op, node.query.attributes, x, node.out(0));
  const ElementGroups g = groups_of(x, reduced);
  const ColumnParts parts = parts_of(node.physical, g, last_is_reduced(x, reduced));
  return parts.count == 1 ? 0 : parts.count * g.outputs * sizeof(float);
}

uint32_t accumulates(const NodeView& node) { return workspace(node) == 0 ? 0 : 1; }

void reduce_in_parts(Launch& l, const ElementGroups& g, const ColumnParts& parts, double factor) {
  const bool wide = is_wide(g) && l.in(0) % 16 == 0;
  const Grid grid = l.over_single_elements(parts.count * g.outputs / (wide ? kWide : 1));
  Push push;
  push.add(l.in(0), l.workspace()).table(l.table(words_of(g)));
  push.u32(g.outputs, g.length, parts.terms, parts.count, grid.per_group);
  l.dispatch(wide ? shader::column_parts_eight : shader::column_parts_one,
             {rank_of(g.kept), rank_of(g.gone)}, push, grid, l.each(g.outputs * g.length, 10, 1));
  l.barrier();
  add_column_parts(l, l.workspace(), 0, parts.count, g.outputs, factor);
}

template <bool kMean>
void reduce(Launch& l) {
  const Shape& x = l.in_shape(0);
  const Axes reduced = reduced_axes(l.op(), l.attributes(), x, l.out_shape(0));
  const ElementGroups g = groups_of(x, reduced);
  const double factor = kMean ? 1.0 / static_cast<double>(g.length) : 1.0;
  const bool rows = last_is_reduced(x, reduced) && g.length > 1;
  const ColumnParts parts = parts_of(l.physical(), g, rows);
  if (parts.count > 1) {
    reduce_in_parts(l, g, parts, factor);
    return;
  }
  const Grid grid = rows           ? l.over_rows(g.outputs)
                    : g.length > 8 ? l.over_single_elements(g.outputs)
                                   : l.over_elements(g.outputs);
  Push push;
  push.add(l.in(0), l.out(0)).table(l.table(words_of(g))).u32(g.outputs, g.length, grid.per_group);
  push.f32(factor);
  l.dispatch(rows ? shader::reduce_rows : shader::reduce_columns,
             {rank_of(g.kept), rank_of(g.gone)}, push, grid, l.each(x.elements(), 10, 1));
}

const char* refusal(const NodeView& node) {
  const int64_t outputs = std::max<int64_t>(node.out(0).elements(), 1);
  // Terms per iteration.
  const int64_t at_once = outputs == 1 ? 8 * node.physical.subgroup_size : 8;
  return refuse_loops(node, (node.in(0).elements() / outputs + at_once - 1) / at_once,
                      "A sum has more terms than the loops of a software device run.");
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(reduce_sum, .launch = reduce<false>, .workspace = workspace,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(reduce_mean, .launch = reduce<true>, .workspace = workspace,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(global_average_pool, .launch = reduce<true>, .workspace = workspace,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(sum_to, .launch = reduce<false>, .workspace = workspace,
                          .refusal = refusal, .accumulates = accumulates);

}  // namespace bowline::detail::vulkan::reduce_kernels
