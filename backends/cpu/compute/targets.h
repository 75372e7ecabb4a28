// The instruction sets for which kernels are compiled. Include it before any Highway header.
//
// x86: AVX-512 (with FMA), AVX2 and the baseline. The sets between them would increase size and
// compile time without making f32 kernels faster.
//
// aarch64: NEON, with the extensions of arm_extensions.h. SVE would not make kernels faster:
// Neoverse V1 runs four NEON instructions per cycle or two of SVE with twice the width
// (OpenBLAS issue 4786), and newer cores have vectors of 128 bits, where products with SVE are
// slower than with NEON (libxsmm issue 917, OpenBLAS issue 4440). Only A64FX would gain.
//
// RVV is disabled, because kernels keep vectors in arrays, and these have no constant size.
#pragma once

#include <concepts>
#include <string>

#include "base/float16.h"

// As bits, because older releases of Highway do not name all targets: x86 sets newer than AVX-512
// or between the three, then SVE, then RVV.
#ifdef BOWLINE_WITHOUT_AVX512
#define BOWLINE_AVX3_BIT (1LL << 8)
#else
#define BOWLINE_AVX3_BIT 0
#endif
#define HWY_DISABLED_TARGETS                                                             \
  (BOWLINE_AVX3_BIT | 0xFFLL | (1LL << 11) | (1LL << 12) | (0xFLL << 24) | (1LL << 18) | \
   (1LL << 19) | (1LL << 23) | (1LL << 37))

// The version for the best usable set of a function that namespace HWY_NAMESPACE defines for each
// set.
#define BOWLINE_BEST(function)              \
  ([] {                                     \
    HWY_EXPORT(function);                   \
    return &HWY_DYNAMIC_DISPATCH(function); \
  }())
// The same for the element type T: of `function`_f32, `function`_f16 or `function`_bf16.
#define BOWLINE_BEST_FOR(T, function)            \
  ([] {                                          \
    if constexpr (std::same_as<T, float>) {      \
      return BOWLINE_BEST(function##_f32);       \
    } else if constexpr (std::same_as<T, f16>) { \
      return BOWLINE_BEST(function##_f16);       \
    } else {                                     \
      return BOWLINE_BEST(function##_bf16);      \
    }                                            \
  }())

namespace bowline::detail::cpu {

// Restricts the kernels to the set named by the environment variable BOWLINE_CPU_TARGET. The first
// call decides for the process, and must precede the first kernel. Returns "", or the reason why
// the set cannot be used.
const std::string& restrict_instruction_set();

// The set that the kernels use on this machine, with Highway's name ("AVX3", "AVX2", "SSE2",
// "NEON").
const char* instruction_set();

// Whether the kernels may use AVX-512, and AVX2 with FMA and F16C.
#ifdef BOWLINE_WITHOUT_AVX512
constexpr bool has_avx512() { return false; }
#else
bool has_avx512();
#endif
bool has_avx2();

}  // namespace bowline::detail::cpu
