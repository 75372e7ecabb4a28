//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceMax ReduceMin ArgMax ArgMin TopK
// The largest and the smallest elements along axes, and where they are.
#include <algorithm>

#include "index.h"
#include "kernel.h"
#include "numbers.h"

namespace bowline::vulkan {
namespace {

struct Extreme {
  bool smallest = false;
  bool last = false;
};

void launch_extreme(Launch& l, const Groups& g, uint32_t shader, Extreme e) {
  Push push;
  push.add(l.in(0)).add(l.out(0)).table(l.table(g.words)).u32(g.outputs).u32(g.terms);
  const auto elements = static_cast<double>(g.outputs * g.terms);
  l.dispatch(shader, {g.kept, g.gone, e.smallest ? 1u : 0u, e.last ? 1u : 0u}, push,
             l.over_rows(g.outputs), elements * 20, elements * l.element_bytes());
}

void reduce(Launch& l, bool smallest) {
  launch_extreme(l, groups_of(l.in_shape(0), l.attributes<ReduceAttributes>()),
                 BOWLINE_VULKAN_OF_NUMBER(l.type(), extreme, _value), {smallest, false});
}
void reduce_max(Launch& l) { reduce(l, false); }
void reduce_min(Launch& l) { reduce(l, true); }

void arg(Launch& l, bool smallest) {
  const auto& t = l.attributes<ArgAttributes>();
  launch_extreme(l, groups_along(l.in_shape(0), t.axis()),
                 BOWLINE_VULKAN_OF_NUMBER(l.type(), extreme, _index), {smallest, t.last()});
}
void arg_max(Launch& l) { arg(l, false); }
void arg_min(Launch& l) { arg(l, true); }

// The loop over the line of an element stays below the limit of a software device.
constexpr uint64_t kAtOnce = 49152;

void top_k(Launch& l) {
  const auto& t = l.attributes<TopKAttributes>();
  const Shape& x = l.in_shape(0);
  const int axis = positive_axis(t.axis(), x.rank());
  const auto length = static_cast<uint64_t>(x[axis]);
  const auto n = static_cast<uint64_t>(x.elements());
  if (t.k() == 0) {
    return;
  }
  for (uint64_t first = 0; first < length; first += kAtOnce) {
    const uint64_t end = std::min(length, first + kAtOnce);
    Push push;
    push.add(l.in(0)).add(l.out(0)).add(l.out(1)).add(l.workspace()).u32(n).u32(length);
    push.u32(static_cast<uint64_t>(x.elements(axis + 1, x.rank())));
    push.u32(static_cast<uint64_t>(t.k())).u32(first).u32(end);
    const double looks = static_cast<double>(n) * static_cast<double>(end - first);
    l.dispatch(BOWLINE_VULKAN_OF_NUMBER(l.type(), top_k, ), {t.largest() ? 0u : 1u}, push,
               l.over_single_elements(n), looks * 10, static_cast<double>(n) * l.element_bytes());
    if (end < length) {
      l.barrier();
    }
  }
}

uint64_t top_k_workspace(const NodeView& node) {
  const Shape& x = node.in(0);
  const int axis = positive_axis(node.attributes<TopKAttributes>().axis(), x.rank());
  return std::cmp_greater(x[axis], kAtOnce) ? static_cast<uint64_t>(x.elements()) * sizeof(uint32_t)
                                            : 0;
}

const char* reduce_refusal(const NodeView& node) {
  return too_long(node, groups_of(node.in(0), node.attributes<ReduceAttributes>()).terms,
                  node.physical.subgroup_size);
}
const char* arg_refusal(const NodeView& node) {
  return too_long(node, groups_along(node.in(0), node.attributes<ArgAttributes>().axis()).terms,
                  node.physical.subgroup_size);
}

}  // namespace

#define BOWLINE_VULKAN_EXTREMES(suffix)                                                       \
  BOWLINE_VULKAN_KERNEL(reduce_max##suffix, .launch = reduce_max, .refusal = reduce_refusal); \
  BOWLINE_VULKAN_KERNEL(reduce_min##suffix, .launch = reduce_min, .refusal = reduce_refusal); \
  BOWLINE_VULKAN_KERNEL(arg_max##suffix, .launch = arg_max, .refusal = arg_refusal);          \
  BOWLINE_VULKAN_KERNEL(arg_min##suffix, .launch = arg_min, .refusal = arg_refusal);          \
  BOWLINE_VULKAN_KERNEL(top_k##suffix, .launch = top_k, .workspace = top_k_workspace)
BOWLINE_VULKAN_EXTREMES();
BOWLINE_VULKAN_EXTREMES(_f16);
BOWLINE_VULKAN_EXTREMES(_bf16);
BOWLINE_VULKAN_EXTREMES(_i8);
BOWLINE_VULKAN_EXTREMES(_u8);
BOWLINE_VULKAN_EXTREMES(_i32);
BOWLINE_VULKAN_EXTREMES(_i64);
#undef BOWLINE_VULKAN_EXTREMES

}  // namespace bowline::vulkan
