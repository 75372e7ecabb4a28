// See convert.h. The steps are those of core/float16.h, in whole vectors; what is left over goes one by one.
#include "compute/convert.h"

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/convert.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::Rebind<uint32_t, FloatTag>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
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
void widen_all(size_t n, const T* HWY_RESTRICT x, float* HWY_RESTRICT y) {
  const FloatTag f;
  const size_t lanes = hn::Lanes(f);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto h = hn::LoadU(HalfTag(), reinterpret_cast<const uint16_t*>(x + i));
    hn::StoreU(hn::BitCast(f, wide_words(hn::PromoteTo(WordTag(), h), T())), f, y + i);
  }
  for (; i < n; ++i) {
    y[i] = to_f32(x[i]);
  }
}

template <class T>
void narrow_all(size_t n, const float* HWY_RESTRICT x, T* HWY_RESTRICT y) {
  const FloatTag f;
  const hn::RebindToSigned<WordTag> numbers;
  const size_t lanes = hn::Lanes(f);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Words bits = narrow_words(hn::BitCast(WordTag(), hn::LoadU(f, x + i)), T());
    // The conversion to 16 bits saturates: of a number with its sign every pattern is in range.
    const auto spread = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(numbers, bits)));
    const hn::Rebind<int16_t, FloatTag> half;
    hn::StoreU(hn::DemoteTo(half, spread), half, reinterpret_cast<int16_t*>(y + i));
  }
  for (; i < n; ++i) {
    y[i] = from_f32<T>(x[i]);
  }
}

void widen_f16(size_t n, const f16* x, float* y) { widen_all(n, x, y); }
void widen_bf16(size_t n, const bf16* x, float* y) { widen_all(n, x, y); }
void narrow_f16(size_t n, const float* x, f16* y) { narrow_all(n, x, y); }
void narrow_bf16(size_t n, const float* x, bf16* y) { narrow_all(n, x, y); }

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::cpu {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);

void widen(size_t n, const f16* x, float* y) { HWY_DYNAMIC_DISPATCH(widen_f16)(n, x, y); }
void widen(size_t n, const bf16* x, float* y) { HWY_DYNAMIC_DISPATCH(widen_bf16)(n, x, y); }
void narrow(size_t n, const float* x, f16* y) { HWY_DYNAMIC_DISPATCH(narrow_f16)(n, x, y); }
void narrow(size_t n, const float* x, bf16* y) { HWY_DYNAMIC_DISPATCH(narrow_bf16)(n, x, y); }

}  // namespace bowline::cpu
#endif  // HWY_ONCE
