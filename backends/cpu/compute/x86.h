// The instructions of x86 as functions, for files that are compiled for x86 alone.
#pragma once

// GCC warns about its own header: what _mm512_undefined_epi32 gives is on purpose not initialised.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
