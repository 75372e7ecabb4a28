//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo GlobalAveragePool
// Sums over axes, in a fixed order.
#include <algorithm>

#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::reduce_kernels {
namespace {

// Sums over the axes for which `reduced` is set. The kept axes form the output in their order.
void reduce(Launch& l, const Axes& reduced, bool mean) {
  const Shape& x = l.in_shape(0);
  const auto strides = strides_of(x);
  Loops kept(1);
  Loops summed(1);
  bool last_is_summed = false;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    (reduced[a] ? summed : kept).add(x[axis], {strides[a]});
    last_is_summed = x[axis] == 1 ? last_is_summed : reduced[a];
  }
  kept.finish();
  summed.finish();
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const auto length = static_cast<uint64_t>(summed.elements());
  std::vector<uint32_t> words;
  kept.append_to(&words);
  summed.append_to(&words);
  const bool rows = last_is_summed && length > 1;
  const Grid grid = rows         ? l.over_rows(n)
                    : length > 8 ? l.over_single_elements(n)
                                 : l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.out(0)).table(l.table(words)).u32(n).u32(length).u32(grid.per_group);
  push.f32(mean ? 1.0 / static_cast<double>(length) : 1.0);
  const auto terms = static_cast<double>(x.elements());
  l.dispatch(rows ? of_type(l.type(), shader::reduce_rows_f32, shader::reduce_rows_f16,
                            shader::reduce_rows_bf16)
                  : of_type(l.type(), shader::reduce_columns_f32, shader::reduce_columns_f16,
                            shader::reduce_columns_bf16),
             {kept.rank(), summed.rank()}, push, grid, terms * 10, terms * l.element_bytes());
}

void reduce_axes(Launch& l, bool mean) {
  const auto* axes = l.attributes<ReduceAttributes>().axes();
  reduce(l, named_axes({axes->data(), axes->size()}, l.in_shape(0).rank()), mean);
}

void reduce_sum(Launch& l) { reduce_axes(l, false); }
void reduce_mean(Launch& l) { reduce_axes(l, true); }

void global_average_pool(Launch& l) {
  Axes spatial{};
  std::fill(spatial.begin() + 2, spatial.begin() + l.in_shape(0).rank(), true);
  reduce(l, spatial, true);
}

void sum_to(Launch& l) { reduce(l, stretched_axes(l.in_shape(0), l.out_shape(0)), false); }

const char* refusal(const NodeView& node) {
  const int64_t outputs = std::max<int64_t>(node.out(0).elements(), 1);
  const int64_t at_once =
      outputs == 1 ? 8 * node.physical.subgroup_size : 8;  // terms per iteration
  const bool long_sum = node.in(0).elements() / outputs > kMaxIterations * at_once;
  return node.physical.is_software() && long_sum
             ? "A sum has more terms than the loops of a software device run."
             : nullptr;
}

}  // namespace

BOWLINE_VULKAN_KERNEL(reduce_sum, .launch = reduce_sum, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(reduce_mean, .launch = reduce_mean, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(reduce_sum_f16, .launch = reduce_sum, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(reduce_sum_bf16, .launch = reduce_sum, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(reduce_mean_f16, .launch = reduce_mean, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(reduce_mean_bf16, .launch = reduce_mean, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(global_average_pool, .launch = global_average_pool, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(global_average_pool_f16, .launch = global_average_pool, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(global_average_pool_bf16, .launch = global_average_pool, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(sum_to, .launch = sum_to, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(sum_to_f16, .launch = sum_to, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(sum_to_bf16, .launch = sum_to, .refusal = refusal);

}  // namespace bowline::detail::vulkan::reduce_kernels
