// Shapes and axes of a reduction, computed from its attributes.
#pragma once

#include "ops/op.h"

namespace bowline {

struct Reduced {
  Shape kept;          // the input shape, with 1 for every reduced axis
  Shape result;        // the output shape
  int64_t length = 1;  // number of elements per sum
  uint32_t axes = 0;   // bit a: axis a is reduced
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

// Remaining axes keep their dynamic dimensions. `summed` handles each reduced axis.
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

// Rule for a reduction with the neutral element `neutral`.
inline Status mask_reduced(CountedContext& c, double neutral) {
  return count_reduced(c, [&](int axis) {
    c.mask(0, axis, neutral);
    return Status();
  });
}

inline Status infer_reduced(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(c.attributes<ReduceAttributes>(), c.in(0)));
  return c.out(0, r.result);
}

// Allows a reduction and then `extra` roundings.
template <int extra>
Tolerance reduced_tolerance(ToleranceContext& c) {
  const auto r = reduced(c.attributes<ReduceAttributes>(), c.in(0));
  return Tolerance::of_reduction(r.ok() ? r.value().length : 1, extra);
}

}  // namespace bowline
