// Converts f16 and bf16 arrays from and to f32, with the rounding of base/float16.h.
#pragma once

#include <cstddef>

#include "base/float16.h"
#include "threads.h"

namespace bowline::detail::cpu {

void widen(size_t n, const f16* x, float* y);
void widen(size_t n, const bf16* x, float* y);
void narrow(size_t n, const float* x, f16* y);
void narrow(size_t n, const float* x, bf16* y);

// The same on the thread pool.
template <class T>
void widen(Threads& threads, size_t n, const T* x, float* y) {
  constexpr size_t kUnit = 32768;
  threads.parallel_for((n + kUnit - 1) / kUnit, [=](size_t task, size_t) {
    const size_t i = task * kUnit;
    widen(n - i < kUnit ? n - i : kUnit, x + i, y + i);
  });
}
template <class T>
void narrow(Threads& threads, size_t n, const float* x, T* y) {
  constexpr size_t kUnit = 32768;
  threads.parallel_for((n + kUnit - 1) / kUnit, [=](size_t task, size_t) {
    const size_t i = task * kUnit;
    narrow(n - i < kUnit ? n - i : kUnit, x + i, y + i);
  });
}

}  // namespace bowline::detail::cpu
