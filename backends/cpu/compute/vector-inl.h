// Loops over arrays whose last vector may be partial. Included once per instruction set.
#if defined(BOWLINE_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_VECTOR_INL_H
#undef BOWLINE_CPU_VECTOR_INL_H
#else
#define BOWLINE_CPU_VECTOR_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

struct WholeVector {
  FloatVector load(const float* p) const { return hn::LoadU(FloatTag(), p); }
  void store(FloatVector v, float* p) const { hn::StoreU(v, FloatTag(), p); }
  // Lanes that are not there become `v`.
  FloatVector or_else(FloatVector x, FloatVector) const { return x; }
};

struct PartialVector {
  hn::Mask<FloatTag> mask;
  FloatVector load(const float* p) const { return hn::MaskedLoad(mask, FloatTag(), p); }
  void store(FloatVector v, float* p) const { hn::BlendedStore(v, mask, FloatTag(), p); }
  FloatVector or_else(FloatVector x, FloatVector v) const { return hn::IfThenElse(mask, x, v); }
};

// f(i, part) for i = 0, lanes, 2 lanes ... below n; `part` loads and stores what is there of the
// vector at i.
template <class F>
HWY_INLINE void for_vectors(size_t n, F&& f) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    f(i, WholeVector{});
  }
  if (i < n) {
    f(i, PartialVector{hn::FirstN(d, n - i)});
  }
}

// Sum of f(i, part) over the vectors; four sums hide the latency of the addition.
template <class F>
HWY_INLINE float sum_vectors(size_t n, F&& f) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVector s0 = hn::Zero(d);
  FloatVector s1 = hn::Zero(d);
  FloatVector s2 = hn::Zero(d);
  FloatVector s3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, f(i, WholeVector{}));
    s1 = hn::Add(s1, f(i + lanes, WholeVector{}));
    s2 = hn::Add(s2, f(i + 2 * lanes, WholeVector{}));
    s3 = hn::Add(s3, f(i + 3 * lanes, WholeVector{}));
  }
  for (; i + lanes <= n; i += lanes) {
    s0 = hn::Add(s0, f(i, WholeVector{}));
  }
  if (i < n) {
    const PartialVector part{hn::FirstN(d, n - i)};
    s1 = hn::Add(s1, part.or_else(f(i, part), hn::Zero(d)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
