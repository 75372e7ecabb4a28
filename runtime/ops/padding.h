// Parts shared by Pad, PadGrad and Tile.
#pragma once

#include "core/padding.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::padding {

// The axes of Pad applied to a tensor of shape `source`.
// Errors  bad_argument: the pads do not fit the shape.
inline Result<std::vector<PaddedAxis>> axes_of(const PadAttributes& t, const Shape& source) {
  const auto rank = static_cast<uint32_t>(source.rank());
  BOWLINE_REQUIRE(t.begin()->size() == rank && t.end()->size() == rank,
                  "There are {} pads at the start and {} at the end of {} axes.", t.begin()->size(),
                  t.end()->size(), rank);
  std::vector<PaddedAxis> out;
  for (uint32_t a = 0; a < rank; ++a) {
    const int64_t begin = t.begin()->Get(a);
    const int64_t end = t.end()->Get(a);
    const PaddedAxis axis = padded_axis(source[static_cast<int>(a)], begin, end);
    const int64_t pads = std::max({begin, end, int64_t{0}});
    BOWLINE_REQUIRE(axis.part >= 0, "Pads {} and {} crop more than the size of axis {} ({}).",
                    begin, end, a, axis.source);
    BOWLINE_REQUIRE(t.mode() == PadMode::constant || axis.part > 0 || pads == 0,
                    "Axis {} is empty and has no element that pads {} and {} can repeat.", a, begin,
                    end);
    BOWLINE_REQUIRE(t.mode() != PadMode::reflect || pads < axis.part || pads == 0,
                    "Pads {} and {} reflect more than axis {} has beside its edge ({}).", begin,
                    end, a, axis.part - 1);
    out.push_back(axis);
  }
  return out;
}

// The source element that position `at` of a padded axis copies, or -1 if it copies none.
inline int64_t source_of(const PaddedAxis& axis, PadMode mode, int64_t at) {
  int64_t i = at - axis.before;
  while (i < 0 || i >= axis.part) {
    switch (mode) {
      case PadMode::constant:
        return -1;
      case PadMode::edge:
        i = i < 0 ? 0 : axis.part - 1;
        break;
      case PadMode::reflect:
        i = i < 0 ? -i : 2 * (axis.part - 1) - i;
        break;
      case PadMode::wrap:
        i += i < 0 ? axis.part : -axis.part;
        break;
    }
  }
  return axis.crop + i;
}

// The position in the source that a padded element copies, or -1 if it copies none.
inline int64_t position_of(const std::vector<PaddedAxis>& axes, PadMode mode, const Index& i) {
  int64_t position = 0;
  for (size_t a = 0; a < axes.size(); ++a) {
    const int64_t at = source_of(axes[a], mode, i[static_cast<int>(a)]);
    if (at < 0) {
      return -1;
    }
    position = position * axes[a].source + at;
  }
  return position;
}

// Appends PadGrad of the gradient of output 0.
inline GradientValue gradient_of(GradientContext& c, const PadAttributesT& t) {
  return c.add1(Op::PadGrad, {c.dout(0)}, Attributes::of(t));
}

}  // namespace bowline::detail::padding
