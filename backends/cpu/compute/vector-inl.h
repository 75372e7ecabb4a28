// Loops over arrays whose last vector may be partial. Included once per instruction set.
#if defined(BOWLINE_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_VECTOR_INL_H
#undef BOWLINE_CPU_VECTOR_INL_H
#else
#define BOWLINE_CPU_VECTOR_INL_H
#endif

#include <algorithm>
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

// The first lanes of a vector. What lies behind them in memory is not touched, not even to write
// back what was read: it may be another thread's, or nobody's. AVX2 and AVX-512 have such loads and
// stores; those of Highway for other sets touch a whole vector.
class PartialVector {
 public:
  explicit PartialVector(size_t count) : count_(count), mask_(hn::FirstN(FloatTag(), count)) {}

#if HWY_TARGET <= HWY_AVX2
  FloatVector load(const float* p) const { return hn::MaskedLoad(mask_, FloatTag(), p); }
  void store(FloatVector v, float* p) const { hn::BlendedStore(v, mask_, FloatTag(), p); }
#else
  FloatVector load(const float* p) const {
    HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())] = {};
    std::copy_n(p, count_, lanes);
    return hn::Load(FloatTag(), lanes);
  }
  void store(FloatVector v, float* p) const {
    HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
    hn::Store(v, FloatTag(), lanes);
    std::copy_n(lanes, count_, p);
  }
#endif
  FloatVector or_else(FloatVector x, FloatVector v) const { return hn::IfThenElse(mask_, x, v); }

 private:
  size_t count_;
  hn::Mask<FloatTag> mask_;
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
    f(i, PartialVector(n - i));
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
    const PartialVector part(n - i);
    s1 = hn::Add(s1, part.or_else(f(i, part), hn::Zero(d)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
