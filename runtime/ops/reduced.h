// What the attributes of a reduction mean for a shape.
#pragma once

#include "ops/op.h"

namespace bowline {

struct Reduced {
  Shape kept;          // 1 in the place of every axis that is summed over
  Shape result;        // the shape of the output
  int64_t length = 1;  // elements under one sum
  uint32_t axes = 0;   // bit a: axis a is summed over
};

inline Result<Reduced> reduced(const ReduceAttributes& t, const Shape& x) {
  uint32_t gone = t.axes()->size() == 0 ? (1u << x.rank()) - 1 : 0;
  for (const int given : *t.axes()) {
    BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(given, x.rank()));
    BOWLINE_REQUIRE((gone >> axis & 1) == 0, "Axis {} is named twice.", axis);
    gone |= 1u << axis;
  }
  Reduced out;
  out.axes = gone;
  for (int a = 0; a < x.rank(); ++a) {
    const bool summed = (gone >> a & 1) != 0;
    out.length *= summed ? x[a] : 1;
    out.kept.push_back(summed ? 1 : x[a]);
    if (!summed || t.keep_dims()) {
      out.result.push_back(summed ? 1 : x[a]);
    }
  }
  return out;
}

// Axes that stay pass their counted dims on; `summed` says what becomes of each of the others.
template <class Summed>
Status count_reduced(CountedContext& c, const Summed& summed) {
  const auto& t = c.attributes<ReduceAttributes>();
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(t, c.in(0)));
  int to = 0;
  for (int a = 0; a < c.in(0).rank(); ++a) {
    const bool stays = (r.axes >> a & 1) == 0;
    if (stays) {
      c.count(0, to, c.dim(0, a));
    } else {
      BOWLINE_TRY(summed(a));
    }
    to += stays || t.keep_dims() ? 1 : 0;
  }
  return {};
}

}  // namespace bowline
