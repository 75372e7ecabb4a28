// Parts shared by kernels of operators for every numeric dtype: the variants of their shaders
// (shaders/lib/number.glsl), and the groups of elements of each result of a reduction
// (shaders/lib/groups.glsl).
#pragma once

#include "index.h"
#include "kernel.h"

// The variant of a shader for a numeric dtype: shader::<stem>_<dtype><rest>.
#define BOWLINE_VULKAN_OF_NUMBER(type, stem, rest)                                               \
  ::bowline::detail::vulkan::of_number(type, shader::stem##_f32##rest, shader::stem##_f16##rest, \
                                       shader::stem##_bf16##rest, shader::stem##_i8##rest,       \
                                       shader::stem##_u8##rest, shader::stem##_i32##rest,        \
                                       shader::stem##_i64##rest)

namespace bowline::detail::vulkan {

constexpr uint32_t of_number(DType type, uint32_t f32, uint32_t f16, uint32_t bf16, uint32_t i8,
                             uint32_t u8, uint32_t i32, uint32_t i64) {
  switch (type) {
    case DType::i8:
      return i8;
    case DType::u8:
      return u8;
    case DType::i32:
      return i32;
    case DType::i64:
      return i64;
    default:
      return of_type(type, f32, f16, bf16);
  }
}

// `outputs` results of `terms` elements each, and the table of their sizes.
struct Groups {
  uint64_t outputs = 1;
  uint64_t terms = 1;
  uint32_t kept = 1;  // ranks
  uint32_t gone = 1;
  std::vector<uint32_t> words;
};

inline Groups groups_of(const Shape& x, const Axes& reduced) {
  const auto strides = strides_of(x);
  Loops kept(1);
  Loops gone(1);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    (reduced[a] ? gone : kept).add(x[axis], {strides[a]});
  }
  kept.finish();
  gone.finish();
  Groups g;
  g.outputs = static_cast<uint64_t>(kept.elements());
  g.terms = static_cast<uint64_t>(gone.elements());
  g.kept = kept.rank();
  g.gone = gone.rank();
  kept.append_to(&g.words);
  gone.append_to(&g.words);
  return g;
}

inline Groups groups_of(const Shape& x, const ReduceAttributes& t) {
  return groups_of(x, named_axes({t.axes()->data(), t.axes()->size()}, x.rank()));
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
  return node.physical.is_software() && terms / lanes > static_cast<uint64_t>(kMaxIterations)
             ? "A line has more elements than the loops of a software device run."
             : nullptr;
}

}  // namespace bowline::detail::vulkan
