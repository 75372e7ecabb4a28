// The instruction sets that kernels are compiled for. Included before any Highway header.
//
// x86: AVX-512 (with FMA), AVX2 and the baseline. The sets between them would add size and compile
// time and no speed to f32 kernels. Scalable vectors (SVE, RVV) are off because the kernels keep
// vectors in arrays.
#pragma once

#include <string>

// By bit, because older releases of Highway do not name all of them: x86 sets newer than AVX-512 or
// between the three, then SVE, then RVV.
#define HWY_DISABLED_TARGETS                                                                      \
  (0xFFLL | (1LL << 11) | (1LL << 12) | (0xFLL << 24) | (1LL << 18) | (1LL << 19) | (1LL << 23) | \
   (1LL << 37))

namespace bowline::detail::cpu {

// Restricts the kernels to the set that the environment variable BOWLINE_CPU_TARGET names. The
// first call decides for the process; it comes before the first kernel runs. Returns "", or the
// reason why the set cannot be used.
const std::string& restrict_instruction_set();

// The set that the kernels use on this machine, by Highway's name ("AVX3", "AVX2", "SSE2", "NEON").
const char* instruction_set();

}  // namespace bowline::detail::cpu
