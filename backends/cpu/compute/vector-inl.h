// Loops over arrays whose last vector may be partial. Included once per instruction set.
#if defined(BOWLINE_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_VECTOR_INL_H
#undef BOWLINE_CPU_VECTOR_INL_H
#else
#define BOWLINE_CPU_VECTOR_INL_H
#endif

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

// Converts f16 and bf16 in vectors, with the steps of base/float16.h.
using WordTag = hn::Rebind<uint32_t, FloatTag>;
using Words = hn::Vec<WordTag>;

HWY_INLINE Words word(uint32_t value) { return hn::Set(WordTag(), value); }

HWY_INLINE Words wide_words(Words h, bf16) { return hn::ShiftLeft<16>(h); }

HWY_INLINE Words wide_words(Words h, f16) {
  const WordTag d;
  const FloatTag f;
  const Words sign = hn::ShiftLeft<16>(hn::And(h, word(0x8000)));
  const Words magnitude = hn::And(h, word(0x7FFF));
  const Words small = hn::BitCast(
      d, hn::Mul(hn::ConvertTo(f, hn::BitCast(hn::RebindToSigned<WordTag>(), magnitude)),
                 hn::Set(f, 0x1p-24f)));
  const Words shifted = hn::ShiftLeft<13>(magnitude);
  const Words normal = hn::Add(shifted, word(uint32_t{127 - 15} << 23));
  const Words special = hn::Or(shifted, word(0x7F800000));
  const Words out =
      hn::IfThenElse(hn::Lt(magnitude, word(0x400)), small,
                     hn::IfThenElse(hn::Gt(magnitude, word(0x7BFF)), special, normal));
  return hn::Or(sign, out);
}

HWY_INLINE Words narrow_words(Words x, bf16) {
  const Words magnitude = hn::And(x, word(0x7FFFFFFF));
  const Words odd = hn::And(hn::ShiftRight<16>(x), word(1));
  const Words rounded = hn::ShiftRight<16>(hn::Add(hn::Add(x, word(0x7FFF)), odd));
  const Words nan = hn::Or(hn::ShiftRight<16>(x), word(0x40));
  return hn::IfThenElse(hn::Gt(magnitude, word(0x7F800000)), nan, rounded);
}

HWY_INLINE Words narrow_words(Words x, f16) {
  const WordTag d;
  const FloatTag f;
  const Words sign = hn::And(hn::ShiftRight<16>(x), word(0x8000));
  const Words magnitude = hn::And(x, word(0x7FFFFFFF));
  const Words small = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(f, magnitude), hn::Set(f, 0.5f))),
                              word(0x3F000000));
  const Words odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
  const Words lifted =
      hn::Add(hn::Sub(magnitude, word(uint32_t{127 - 15} << 23)), hn::Add(word(0xFFF), odd));
  const Words normal = hn::ShiftRight<13>(lifted);
  Words out = hn::IfThenElse(hn::Lt(magnitude, word(0x38800000)), small, normal);
  out = hn::IfThenElse(hn::Gt(magnitude, word(0x477FFFFF)), word(0x7C00), out);
  out = hn::IfThenElse(hn::Gt(magnitude, word(0x7F800000)), word(0x7E00), out);
  return hn::Or(sign, out);
}

template <class T>
concept Half = std::same_as<T, f16> || std::same_as<T, bf16>;

template <Half T>
HWY_INLINE FloatVector load_half(const T* p) {
  const hn::Rebind<uint16_t, FloatTag> half;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(FloatTag(), wide_words(hn::PromoteTo(WordTag(), bits), T()));
}

template <Half T>
HWY_INLINE void store_half(FloatVector v, T* p) {
  const hn::RebindToSigned<WordTag> numbers;
  const hn::Rebind<int16_t, FloatTag> half;
  const Words bits = narrow_words(hn::BitCast(WordTag(), v), T());
  // The conversion to 16 bits saturates. Sign-extended values are always in range.
  const auto spread = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(numbers, bits)));
  hn::StoreU(hn::DemoteTo(half, spread), half, reinterpret_cast<int16_t*>(p));
}

struct WholeVector {
  FloatVector load(const float* p) const { return hn::LoadU(FloatTag(), p); }
  void store(FloatVector v, float* p) const { hn::StoreU(v, FloatTag(), p); }
  template <Half T>
  FloatVector load(const T* p) const {
    return load_half(p);
  }
  template <Half T>
  void store(FloatVector v, T* p) const {
    store_half(v, p);
  }
  FloatVector load(const int8_t* p) const {
    const hn::RebindToSigned<FloatTag> di;
    return hn::ConvertTo(FloatTag(),
                         hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, FloatTag>(), p)));
  }
  // Replaces missing lanes by `v`.
  FloatVector or_else(FloatVector x, FloatVector) const { return x; }
};

// The first lanes of a vector. Memory behind them is never touched, not even by writing back what
// was read, because it may belong to another thread or be unmapped. AVX2 and AVX-512 have masked
// loads and stores; Highway's loads and stores for other sets touch a whole vector.
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
  template <Half T>
  FloatVector load(const T* p) const {
    T lanes[hn::MaxLanes(FloatTag())] = {};
    std::copy_n(p, count_, lanes);
    return load_half(lanes);
  }
  FloatVector load(const int8_t* p) const {
    int8_t lanes[hn::MaxLanes(FloatTag())] = {};
    std::copy_n(p, count_, lanes);
    return WholeVector().load(lanes);
  }
  template <Half T>
  void store(FloatVector v, T* p) const {
    T lanes[hn::MaxLanes(FloatTag())];
    store_half(v, lanes);
    std::copy_n(lanes, count_, p);
  }
  FloatVector or_else(FloatVector x, FloatVector v) const { return hn::IfThenElse(mask_, x, v); }

 private:
  size_t count_;
  hn::Mask<FloatTag> mask_;
};

// Calls f(i, part) for i = 0, lanes, 2 lanes ... below n. `part` loads and stores the valid part of
// the vector at i.
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

// Sum of f(i, part) over the vectors. Four sums hide the latency of the addition.
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

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
