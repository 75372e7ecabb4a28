//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceMax ReduceMin ArgMax ArgMin TopK
// The largest and smallest elements along axes, and their indices.
#include <algorithm>

#include "groups.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::extreme_kernels {
namespace {

void launch_extreme(Launch& l, const ElementGroups& g, const shader::ByType& shader, bool smallest,
                    bool last) {
  Push push;
  push.add(l.in(0), l.out(0)).table(l.table(words_of(g))).u32(g.outputs, g.length);
  l.dispatch(shader, {rank_of(g.kept), rank_of(g.gone), smallest, last}, push,
             l.over_rows(g.outputs), l.each(g.outputs * g.length, 20, 1));
}

template <bool kSmallest>
void reduce(Launch& l) {
  launch_extreme(l, groups_of(l.in_shape(0), l.attributes<ReduceAttributes>()),
                 shader::extreme_value, kSmallest, false);
}

template <bool kSmallest>
void arg(Launch& l) {
  const auto& t = l.attributes<ArgAttributes>();
  launch_extreme(l, groups_along(l.in_shape(0), t.axis()), shader::extreme_index, kSmallest,
                 t.last());
}

// The loop over the line of an element stays below the limit of a software device.
constexpr uint64_t kAtOnce = 49152;
// Comparisons that all lanes of a GPU make together while one of them waits for an element: 10^12
// per second, 100 ns.
constexpr uint64_t kComparisonsPerWait = 100000;

// Parameters of the two kernels of TopK, and the division of their work.
struct TopK {
  uint64_t elements;
  uint64_t lines;
  uint64_t size;
  uint64_t step;
  uint64_t k;
  // True: k passes, each of which finds the next element of the result. False: each element is
  // compared with all elements of its line.
  bool in_passes;
  uint64_t whole;    // all passes, or all elements of a line
  uint64_t at_once;  // the part of `whole` per dispatch
};

TopK top_k_of(const PhysicalDevice& physical, const Shape& x, const Attributes& attributes) {
  const auto& a = attributes.as<TopKAttributes>();
  const int axis = positive_axis(a.axis(), x.rank());
  TopK t{};
  t.elements = static_cast<uint64_t>(x.elements());
  t.size = static_cast<uint64_t>(x[axis]);
  t.step = static_cast<uint64_t>(x.elements(axis + 1, x.rank()));
  t.lines = static_cast<uint64_t>(x.elements(0, axis)) * t.step;
  t.k = static_cast<uint64_t>(a.k());
  // A pass ends with an exchange between lanes, which costs as much as one element per lane.
  const uint64_t lanes = physical.subgroup_size;
  const uint64_t pass = t.size / lanes + 2;
  const bool fits = !physical.is_software() || pass <= static_cast<uint64_t>(kMaxIterations);
  const bool pays =
      physical.uses_cpu_kernels() || t.k * kComparisonsPerWait < t.lines * t.size * lanes;
  t.in_passes = fits && pays && 2 * t.k < t.size;
  t.whole = t.in_passes ? t.k : t.size;
  t.at_once = !t.in_passes             ? kAtOnce
              : physical.is_software() ? static_cast<uint64_t>(kMaxIterations) / pass
                                       : t.k;
  return t;
}

void top_k(Launch& l) {
  const TopK t = top_k_of(l.physical(), l.in_shape(0), l.attributes());
  if (t.k == 0) {
    return;
  }
  for (uint64_t first = 0; first < t.whole; first += t.at_once) {
    const uint64_t end = std::min(t.whole, first + t.at_once);
    Push push;
    push.add(l.in(0), l.out(0), l.out(1), l.workspace())
        .u32(t.in_passes ? t.lines : t.elements, t.size, t.step, t.k);
    push.u32(first, end);
    const double looks = static_cast<double>(t.elements) * static_cast<double>(end - first);
    l.dispatch(t.in_passes ? shader::top_k_passes : shader::top_k_places,
               {l.attributes<TopKAttributes>().largest() ? 0u : 1u}, push,
               t.in_passes ? l.over_rows(t.lines) : l.over_single_elements(t.elements),
               {looks * 10, static_cast<double>(t.elements) * l.element_bytes()});
    if (end < t.whole) {
      l.barrier();
    }
  }
}

uint64_t top_k_workspace(const NodeView& node) {
  const TopK t = top_k_of(node.physical, node.in(0), node.query.attributes);
  return t.in_passes || t.size <= kAtOnce ? 0 : t.elements * sizeof(uint32_t);
}

const char* reduce_refusal(const NodeView& node) {
  return too_long(node, groups_of(node.in(0), node.attributes<ReduceAttributes>()).length,
                  node.physical.subgroup_size);
}
const char* arg_refusal(const NodeView& node) {
  return too_long(node, groups_along(node.in(0), node.attributes<ArgAttributes>().axis()).length,
                  node.physical.subgroup_size);
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_max, .launch = reduce<false>, .refusal = reduce_refusal);
BOWLINE_KERNELS_OF_NUMBERS(reduce_min, .launch = reduce<true>, .refusal = reduce_refusal);
BOWLINE_KERNELS_OF_NUMBERS(arg_max, .launch = arg<false>, .refusal = arg_refusal);
BOWLINE_KERNELS_OF_NUMBERS(arg_min, .launch = arg<true>, .refusal = arg_refusal);
BOWLINE_KERNELS_OF_NUMBERS(top_k, .launch = top_k, .workspace = top_k_workspace);

}  // namespace bowline::detail::vulkan::extreme_kernels
