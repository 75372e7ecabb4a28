// Dequantization of the block formats of runtime/base/formats. Included once per instruction set.
#if defined(BOWLINE_CPU_FORMATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_FORMATS_INL_H
#undef BOWLINE_CPU_FORMATS_INL_H
#else
#define BOWLINE_CPU_FORMATS_INL_H
#endif

#include <algorithm>
#include <bit>

#include "base/float16.h"
#include "base/formats.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// The descriptions, compiled for this instruction set. A kernel of one format can use its type,
// such as formats::q4_k_format: scales() and code() give the integers of a group.
namespace formats {
#include "base/format_dialect.inc"
}

// Elements [first, first + n) of group g of a block. The loops vectorize.
template <class F>
HWY_INLINE void decode_group(const std::byte* HWY_RESTRICT block, int g, size_t first, size_t n,
                             float* HWY_RESTRICT out) {
  float scale, least;
  F::scales(block, g, scale, least);
  float all[F::kGroup];
  float* HWY_RESTRICT const to = n == F::kGroup ? out : all;
  for (int i = 0; i < F::kGroup; ++i) {
    to[i] = scale * static_cast<float>(F::code(block, g, i)) - least;
  }
  if (to == all) {
    std::copy_n(all + first, n, out);
  }
}

template <class F>
void decode_blocks_of(const std::byte* blocks, size_t first, size_t count,
                      float* HWY_RESTRICT out) {
  while (count > 0) {
    const size_t at = first % F::kBlock;
    const size_t inside = at % F::kGroup;
    const size_t n = std::min(F::kGroup - inside, count);
    decode_group<F>(blocks + first / F::kBlock * F::kBytes, static_cast<int>(at / F::kGroup),
                    inside, n, out);
    first += n;
    out += n;
    count -= n;
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
