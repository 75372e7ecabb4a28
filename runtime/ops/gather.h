// Parts shared by Gather, GatherElements and ScatterElements: indices along an axis. Negative
// indices count from its end.
#pragma once

#include <optional>

#include "ops/build.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::gather {

// Converts an index into an element number of an axis with n elements. Returns nullopt if the index
// is out of range.
inline std::optional<int64_t> element(double index, int64_t n) {
  const auto whole = static_cast<int64_t>(index);
  const int64_t at = whole < 0 ? whole + n : whole;
  return at >= 0 && at < n ? std::optional(at) : std::nullopt;
}

// Checks that `part` has the rank of `data` and is no larger along every axis except `axis`.
// Errors  bad_argument: `part` is larger or has another rank.
inline Status check_within(const char* what, const Shape& part, const Shape& data, int axis) {
  BOWLINE_REQUIRE(part.rank() == data.rank(), "The {} have rank {}, but the data have rank {}.",
                  what, part.rank(), data.rank());
  for (int a = 0; a < data.rank(); ++a) {
    BOWLINE_REQUIRE(a == axis || part[a] <= data[a],
                    "Axis {} of the {} ({}) is longer than that of the data ({}).", a, what,
                    part[a], data[a]);
  }
  return {};
}

inline GradientValue scattered(GradientContext& c, GradientValue data, GradientValue indices,
                               GradientValue updates, int axis, ScatterReduction reduction) {
  ScatterElementsAttributesT t;
  t.axis = axis;
  t.reduction = reduction;
  return c.add1(Op::ScatterElements, {data, indices, updates}, Attributes::of(t));
}

inline GradientValue gathered(GradientContext& c, GradientValue data, GradientValue indices,
                              int axis) {
  GatherAttributesT t;
  t.axis = axis;
  return c.add1(Op::GatherElements, {data, indices}, Attributes::of(t));
}

}  // namespace bowline::detail::gather
