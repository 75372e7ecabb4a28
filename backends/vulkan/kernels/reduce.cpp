//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo GlobalAveragePool
// Sums over axes, in a fixed order.
#include <algorithm>

#include "groups.h"

namespace bowline::detail::vulkan::reduce_kernels {
namespace {

// Sums over the axes for which `reduced` is set.
void reduce(Launch& l, const Axes& reduced, bool mean) {
  const Shape& x = l.in_shape(0);
  const ElementGroups g = groups_of(x, reduced);
  bool last_is_summed = false;
  for (int axis = 0; axis < x.rank(); ++axis) {
    last_is_summed = x[axis] == 1 ? last_is_summed : reduced[static_cast<size_t>(axis)];
  }
  const bool rows = last_is_summed && g.length > 1;
  const Grid grid = rows           ? l.over_rows(g.outputs)
                    : g.length > 8 ? l.over_single_elements(g.outputs)
                                   : l.over_elements(g.outputs);
  Push push;
  push.add(l.in(0), l.out(0)).table(l.table(words_of(g))).u32(g.outputs, g.length, grid.per_group);
  push.f32(mean ? 1.0 / static_cast<double>(g.length) : 1.0);
  l.dispatch(rows ? shader::reduce_rows : shader::reduce_columns,
             {rank_of(g.kept), rank_of(g.gone)}, push, grid, l.each(x.elements(), 10, 1));
}

template <bool kMean>
void reduce_axes(Launch& l) {
  const auto* axes = l.attributes<ReduceAttributes>().axes();
  reduce(l, named_axes({axes->data(), axes->size()}, l.in_shape(0).rank()), kMean);
}

void global_average_pool(Launch& l) {
  Axes spatial{};
  std::fill(spatial.begin() + 2, spatial.begin() + l.in_shape(0).rank(), true);
  reduce(l, spatial, true);
}

void sum_to(Launch& l) { reduce(l, stretched_axes(l.in_shape(0), l.out_shape(0)), false); }

const char* refusal(const NodeView& node) {
  const int64_t outputs = std::max<int64_t>(node.out(0).elements(), 1);
  // Terms per iteration.
  const int64_t at_once = outputs == 1 ? 8 * node.physical.subgroup_size : 8;
  return refuse_loops(node, (node.in(0).elements() / outputs + at_once - 1) / at_once,
                      "A sum has more terms than the loops of a software device run.");
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(reduce_sum, .launch = reduce_axes<false>, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(reduce_mean, .launch = reduce_axes<true>, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(global_average_pool, .launch = global_average_pool, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(sum_to, .launch = sum_to, .refusal = refusal);

}  // namespace bowline::detail::vulkan::reduce_kernels
