//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceProd CumSum
//! ops(i8, u8, i32, i64) ReduceSum
//! ops(f32, f16, bf16) ReduceProdGrad
// Products over axes and their gradient, sums of integers, and cumulative sums, in a fixed order.
// Integers wrap around.
#include "groups.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::fold_kernels {
namespace {

template <bool kProduct>
void fold(Launch& l) {
  const ElementGroups g = groups_of(l.in_shape(0), l.attributes<ReduceAttributes>());
  Push push;
  push.add(l.in(0), l.out(0)).table(l.table(words_of(g))).u32(g.outputs, g.length);
  l.dispatch(shader::fold, {rank_of(g.kept), rank_of(g.gone), kProduct}, push,
             l.over_rows(g.outputs), l.each(g.outputs * g.length, 20, 1));
}

const char* fold_refusal(const NodeView& node) {
  return too_long(node, groups_of(node.in(0), node.attributes<ReduceAttributes>()).length,
                  node.physical.subgroup_size);
}

void prod_grad(Launch& l) {
  const ElementGroups g = groups_of(l.in_shape(0), l.attributes<ReduceAttributes>());
  Push push;
  push.add(l.in(0), l.in(1), l.out(0), l.type() == DType::f32 ? l.out(0) : l.workspace());
  push.table(l.table(words_of(g))).u32(g.outputs, g.length);
  l.dispatch(shader::prod_grad, {rank_of(g.kept), rank_of(g.gone)}, push,
             l.over_single_elements(g.outputs), l.each(g.outputs * g.length, 40, 4));
}

uint64_t prod_grad_workspace(const NodeView& node) {
  return node.query.type == DType::f32
             ? 0
             : static_cast<uint64_t>(node.out(0).elements()) * sizeof(float);
}

// Two loops over the group.
const char* prod_grad_refusal(const NodeView& node) {
  return too_long(node, 2 * groups_of(node.in(0), node.attributes<ReduceAttributes>()).length, 1);
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
  return physical.uses_cpu_kernels() ? x.lines < physical.subgroup_size || x.size > kMaxIterations
                                     : x.lines < kManyLines || x.step == 1;
}

void cum_sum(Launch& l) {
  const auto& t = l.attributes<CumSumAttributes>();
  const Lines x = lines_of(l.in_shape(0), l.attributes());
  const bool shared = shares_lines(l.physical(), x);
  Push push;
  push.add(l.in(0), l.out(0)).u32(x.lines, x.size, x.step);
  l.dispatch(shared ? shader::cum_sum_subgroup : shader::cum_sum_lane, {t.exclusive(), t.reverse()},
             push, shared ? l.over_rows(x.lines) : l.over_single_elements(x.lines),
             l.each(x.lines * x.size, 10, 2));
}

const char* cum_sum_refusal(const NodeView& node) {
  const Lines x = lines_of(node.in(0), node.query.attributes);
  return too_long(node, x.size, shares_lines(node.physical, x) ? node.physical.subgroup_size : 1);
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_prod, .launch = fold<true>, .refusal = fold_refusal);
BOWLINE_KERNELS_OF_INTEGERS(reduce_sum, .launch = fold<false>, .refusal = fold_refusal);
BOWLINE_KERNELS_OF_NUMBERS(cum_sum, .launch = cum_sum, .refusal = cum_sum_refusal);
BOWLINE_KERNELS_OF_FLOATS(reduce_prod_grad, .launch = prod_grad, .workspace = prod_grad_workspace,
                          .refusal = prod_grad_refusal);

}  // namespace bowline::detail::vulkan::fold_kernels
