// x86 intrinsics, for files that are compiled only for x86.
#pragma once

// GCC warns about its own header: _mm512_undefined_epi32 is uninitialized on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
