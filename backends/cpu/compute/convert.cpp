// See convert.h.
#include "compute/convert.h"

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/convert.cpp"
#include "hwy/foreach_target.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

template <class From, class To>
void convert(size_t n, const From* HWY_RESTRICT x, To* HWY_RESTRICT y) {
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR { part.store(part.load(x + i), y + i); });
}

void widen_f16(size_t n, const f16* x, float* y) { convert(n, x, y); }
void widen_bf16(size_t n, const bf16* x, float* y) { convert(n, x, y); }
void narrow_f16(size_t n, const float* x, f16* y) { convert(n, x, y); }
void narrow_bf16(size_t n, const float* x, bf16* y) { convert(n, x, y); }

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {

void widen(size_t n, const f16* x, float* y) { BOWLINE_BEST(widen_f16)(n, x, y); }
void widen(size_t n, const bf16* x, float* y) { BOWLINE_BEST(widen_bf16)(n, x, y); }
void narrow(size_t n, const float* x, f16* y) { BOWLINE_BEST(narrow_f16)(n, x, y); }
void narrow(size_t n, const float* x, bf16* y) { BOWLINE_BEST(narrow_bf16)(n, x, y); }

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
