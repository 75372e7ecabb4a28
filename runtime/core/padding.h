// The geometry of Pad and Tile, per axis. Negative pads first crop the tensor. Positive pads are
// then added around the rest. A tiled tensor is a tensor with pads that wrap around.
#pragma once

#include "core/attributes.h"
#include "core/shape.h"

namespace bowline {

// A padded axis with `whole` elements. It contains `part` elements of the source axis, which has
// `source` elements: those from index `crop` on, starting at index `before`.
struct PaddedAxis {
  int64_t source = 1;
  int64_t crop = 0;
  int64_t part = 1;
  int64_t before = 0;
  int64_t whole = 1;
};

constexpr PaddedAxis padded_axis(int64_t source, int64_t begin, int64_t end) {
  PaddedAxis a;
  a.source = source;
  a.crop = begin < 0 ? -begin : 0;
  a.part = source - a.crop + (end < 0 ? end : 0);
  a.before = begin > 0 ? begin : 0;
  a.whole = source + begin + end;
  return a;
}

// The source element at position `at` of a padded axis, or -1 if there is none.
constexpr int64_t taken(const PaddedAxis& axis, PadMode mode, int64_t at) {
  const int64_t i = at - axis.before;
  if (i >= 0 && i < axis.part) {
    return i;
  }
  switch (mode) {
    case PadMode::edge:
      return i < 0 ? 0 : axis.part - 1;
    case PadMode::reflect:
      return i < 0 ? -i : 2 * (axis.part - 1) - i;
    case PadMode::wrap:
      return (i % axis.part + axis.part) % axis.part;
    default:
      return -1;
  }
}

// The positions of a padded axis that copy element i of the source: `count` positions from `first`
// on, `step` apart. The last position can differ from this pattern.
struct Takers {
  int64_t count = 0;
  int64_t first = 0;
  int64_t step = 1;
  int64_t last = 0;
  constexpr int64_t at(int64_t k) const { return k + 1 == count ? last : first + k * step; }
};

constexpr Takers takers_of(const PaddedAxis& axis, PadMode mode, int64_t source) {
  const int64_t i = source - axis.crop;
  if (i < 0 || i >= axis.part) {
    return {};
  }
  const int64_t own = axis.before + i;
  Takers t{1, own, 1, own};
  if (mode == PadMode::edge) {
    t.first = i == 0 ? 0 : own;
    t.last = i + 1 == axis.part ? axis.whole - 1 : own;
    t.count = t.last - t.first + 1;
  } else if (mode == PadMode::wrap) {
    t.step = axis.part;
    t.first = own % axis.part;
    t.count = (axis.whole - 1 - t.first) / axis.part + 1;
    t.last = t.first + (t.count - 1) * t.step;
  } else if (mode == PadMode::reflect) {
    const int64_t left = axis.before - i;
    const int64_t right = own + 2 * (axis.part - 1 - i);
    const bool has_left = i > 0 && left >= 0;
    const bool has_right = i + 1 < axis.part && right < axis.whole;
    t.count = 1 + (has_left ? 1 : 0) + (has_right ? 1 : 0);
    t.first = has_left ? left : own;
    t.step = own - t.first;
    t.last = has_right ? right : own;
  }
  return t;
}

// The padded axes of a tensor. Adjacent axes without pads are merged into one.
struct Padding {
  int rank = 0;
  std::array<PaddedAxis, kMaxRank> axes;

  void add(const PaddedAxis& a) {
    const bool is_whole = a.part == a.source && a.part == a.whole;
    if (rank > 0 && is_whole && untouched_) {
      PaddedAxis& last = axes[static_cast<size_t>(rank - 1)];
      last.source *= a.source;
      last.part = last.source;
      last.whole = last.source;
    } else {
      axes[static_cast<size_t>(rank++)] = a;
    }
    untouched_ = is_whole;
  }
  // The strides of the source, in elements.
  std::array<int64_t, kMaxRank> strides() const {
    std::array<int64_t, kMaxRank> out{};
    int64_t step = 1;
    for (int a = rank - 1; a >= 0; --a) {
      out[static_cast<size_t>(a)] = step;
      step *= axes[static_cast<size_t>(a)].source;
    }
    return out;
  }

 private:
  bool untouched_ = false;
};

// Makes the axes of Pad. `begin` and `end` have one pad per axis of `source`.
template <class List>
Padding padding_of(const Shape& source, const List& begin, const List& end) {
  Padding out;
  for (int a = 0; a < source.rank(); ++a) {
    const auto i = static_cast<uint32_t>(a);
    out.add(padded_axis(source[a], begin.Get(i), end.Get(i)));
  }
  return out;
}

// Makes the axes of Tile. `repeated` is the output shape.
inline Padding padding_of(const Shape& source, const Shape& repeated) {
  Padding out;
  for (int a = 0; a < source.rank(); ++a) {
    out.add(padded_axis(source[a], 0, repeated[a] - source[a]));
  }
  return out;
}

}  // namespace bowline
