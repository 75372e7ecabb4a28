//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceProd CumSum
//! ops(i8, u8, i32, i64) ReduceSum
//! ops(f32, f16, bf16) ReduceProdGrad
// Products over axes and their gradient, sums of integers, and cumulative sums, in a fixed order.
// Integers wrap around.
#include "index.h"
#include "kernel.h"
#include "numbers.h"

namespace bowline::detail::vulkan::fold_kernels {
namespace {

void fold(Launch& l, bool product) {
  const Groups g = groups_of(l.in_shape(0), l.attributes<ReduceAttributes>());
  Push push;
  push.add(l.in(0)).add(l.out(0)).table(l.table(g.words)).u32(g.outputs).u32(g.terms);
  const auto elements = static_cast<double>(g.outputs * g.terms);
  l.dispatch(BOWLINE_VULKAN_OF_NUMBER(l.type(), fold, ), {g.kept, g.gone, product ? 1u : 0u}, push,
             l.over_rows(g.outputs), elements * 20, elements * l.element_bytes());
}
void reduce_prod(Launch& l) { fold(l, true); }
void reduce_sum(Launch& l) { fold(l, false); }

const char* fold_refusal(const NodeView& node) {
  return too_long(node, groups_of(node.in(0), node.attributes<ReduceAttributes>()).terms,
                  node.physical.subgroup_size);
}

void prod_grad(Launch& l) {
  const Groups g = groups_of(l.in_shape(0), l.attributes<ReduceAttributes>());
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.out(0));
  push.add(l.type() == DType::f32 ? l.out(0) : l.workspace());
  push.table(l.table(g.words)).u32(g.outputs).u32(g.terms);
  const auto elements = static_cast<double>(g.outputs * g.terms);
  l.dispatch(
      of_type(l.type(), shader::prod_grad_f32, shader::prod_grad_f16, shader::prod_grad_bf16),
      {g.kept, g.gone}, push, l.over_single_elements(g.outputs), elements * 40,
      elements * 4 * l.element_bytes());
}

uint64_t prod_grad_workspace(const NodeView& node) {
  return node.query.type == DType::f32
             ? 0
             : static_cast<uint64_t>(node.out(0).elements()) * sizeof(float);
}

// Two loops over the group.
const char* prod_grad_refusal(const NodeView& node) {
  return too_long(node, 2 * groups_of(node.in(0), node.attributes<ReduceAttributes>()).terms, 1);
}

// Lines along an axis, with `step` from one element to the next.
struct Lines {
  uint64_t lines;
  uint64_t size;
  uint64_t step;
};

Lines lines_of(const Shape& x, const Attributes& attributes) {
  const int axis = positive_axis(attributes.as<CumSumAttributes>().axis(), x.rank());
  const int64_t step = x.elements(axis + 1, x.rank());
  return {static_cast<uint64_t>(x.elements(0, axis) * step), static_cast<uint64_t>(x[axis]),
          static_cast<uint64_t>(step)};
}

// On a GPU, one line per lane leaves lanes idle, and lanes that share a line load neighbouring
// elements together. On a CPU, lanes load one by one and are busy with one line each.
constexpr uint64_t kManyLines = 4096;

bool shares_lines(const PhysicalDevice& physical, const Lines& x) {
  if (x.size < physical.subgroup_size) {
    return false;
  }
  return physical.is_software() ? x.lines < physical.subgroup_size || x.size > kMaxIterations
                                : x.lines < kManyLines || x.step == 1;
}

void cum_sum(Launch& l) {
  const auto& t = l.attributes<CumSumAttributes>();
  const Lines x = lines_of(l.in_shape(0), l.attributes());
  const bool shared = shares_lines(l.physical(), x);
  Push push;
  push.add(l.in(0)).add(l.out(0)).u32(x.lines).u32(x.size).u32(x.step);
  const auto elements = static_cast<double>(x.lines * x.size);
  l.dispatch(shared ? BOWLINE_VULKAN_OF_NUMBER(l.type(), cum_sum, _subgroup)
                    : BOWLINE_VULKAN_OF_NUMBER(l.type(), cum_sum, _lane),
             {t.exclusive() ? 1u : 0u, t.reverse() ? 1u : 0u}, push,
             shared ? l.over_rows(x.lines) : l.over_single_elements(x.lines), elements * 10,
             elements * 2 * l.element_bytes());
}

const char* cum_sum_refusal(const NodeView& node) {
  const Lines x = lines_of(node.in(0), node.query.attributes);
  return too_long(node, x.size, shares_lines(node.physical, x) ? node.physical.subgroup_size : 1);
}

}  // namespace

#define BOWLINE_VULKAN_FOLDS(suffix)                                                          \
  BOWLINE_VULKAN_KERNEL(reduce_prod##suffix, .launch = reduce_prod, .refusal = fold_refusal); \
  BOWLINE_VULKAN_KERNEL(cum_sum##suffix, .launch = cum_sum, .refusal = cum_sum_refusal)
BOWLINE_VULKAN_FOLDS();
BOWLINE_VULKAN_FOLDS(_f16);
BOWLINE_VULKAN_FOLDS(_bf16);
BOWLINE_VULKAN_FOLDS(_i8);
BOWLINE_VULKAN_FOLDS(_u8);
BOWLINE_VULKAN_FOLDS(_i32);
BOWLINE_VULKAN_FOLDS(_i64);
#undef BOWLINE_VULKAN_FOLDS

BOWLINE_VULKAN_KERNEL(reduce_sum_i8, .launch = reduce_sum, .refusal = fold_refusal);
BOWLINE_VULKAN_KERNEL(reduce_sum_u8, .launch = reduce_sum, .refusal = fold_refusal);
BOWLINE_VULKAN_KERNEL(reduce_sum_i32, .launch = reduce_sum, .refusal = fold_refusal);
BOWLINE_VULKAN_KERNEL(reduce_sum_i64, .launch = reduce_sum, .refusal = fold_refusal);
BOWLINE_VULKAN_KERNEL(reduce_prod_grad, .launch = prod_grad, .refusal = prod_grad_refusal);
BOWLINE_VULKAN_KERNEL(reduce_prod_grad_f16, .launch = prod_grad, .workspace = prod_grad_workspace,
                      .refusal = prod_grad_refusal);
BOWLINE_VULKAN_KERNEL(reduce_prod_grad_bf16, .launch = prod_grad, .workspace = prod_grad_workspace,
                      .refusal = prod_grad_refusal);

}  // namespace bowline::detail::vulkan::fold_kernels
