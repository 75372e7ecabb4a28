// The groups of elements of each result of a reduction (shaders/lib/groups.glsl).
#pragma once

#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan {

// `outputs` results of `terms` elements each, and the table of their sizes.
struct Groups {
  uint64_t outputs = 1;
  uint64_t terms = 1;
  uint32_t kept = 1;  // ranks
  uint32_t gone = 1;
  std::vector<uint32_t> words;
};

// The kept axes form the output in their order.
inline Groups groups_of(const Shape& x, const Axes& reduced) {
  const auto strides = strides_of(x);
  Loops kept(1);
  Loops gone(1);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    (reduced[a] ? gone : kept).add(x[axis], {strides[a]});
  }
  Groups g{static_cast<uint64_t>(kept.elements()), static_cast<uint64_t>(gone.elements()),
           kept.rank(), gone.rank(), kept.words()};
  const std::vector<uint32_t> behind = gone.words();
  g.words.insert(g.words.end(), behind.begin(), behind.end());
  return g;
}

inline Axes reduced_axes(const Shape& x, const ReduceAttributes& t) {
  return named_axes({t.axes()->data(), t.axes()->size()}, x.rank());
}

inline Groups groups_of(const Shape& x, const ReduceAttributes& t) {
  return groups_of(x, reduced_axes(x, t));
}

// The lines along an axis.
inline Groups groups_along(const Shape& x, int axis) {
  Axes one{};
  one[static_cast<size_t>(positive_axis(axis, x.rank()))] = true;
  return groups_of(x, one);
}

// The reason why a loop over `terms` elements, with every `lanes`-th element per invocation, cannot
// run here; null if it can.
inline const char* too_long(const NodeView& node, uint64_t terms, uint32_t lanes) {
  return refuse_loops(node, terms / lanes,
                      "A line has more elements than the loops of a software device run.");
}

}  // namespace bowline::detail::vulkan
