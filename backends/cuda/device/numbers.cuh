// Conversion of elements of every dtype to the type in which kernels compute: f32 for floats, 64
// bits for integers. Results of integers keep the low bits.
#pragma once

#include <cmath>
#include <type_traits>

#include "core/element_types.h"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

template <class T>
constexpr bool kIsWhole = std::is_integral_v<T>;

template <class T>
using Number = std::conditional_t<kIsWhole<T>, int64_t, float>;

template <class T>
__device__ Number<T> number_at(const T* at) {
  if constexpr (kIsWhole<T>) {
    return static_cast<int64_t>(*at);
  } else {
    return read(at);
  }
}

template <class T>
__device__ void store_number(T* at, Number<T> x) {
  if constexpr (kIsWhole<T>) {
    *at = static_cast<T>(x);
  } else {
    write(at, x);
  }
}

// Overflow of integers wraps around.
__device__ inline float sum_of(float a, float b) { return a + b; }
__device__ inline int64_t sum_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
__device__ inline float product_of(float a, float b) { return a * b; }
__device__ inline int64_t product_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Maps a value to an integer with the same order. NaN is the largest value, and 0 equals -0.
__device__ inline int64_t order_of(int64_t x) { return x; }
__device__ inline int64_t order_of(float x) {
  if (x != x) {
    return INT64_MAX;
  }
  const auto bits = static_cast<int32_t>(__float_as_uint(x));
  const int32_t order = bits < 0 ? static_cast<int32_t>(bits ^ 0x7FFFFFFF) : bits;
  return order == -1 ? 0 : order;
}

// Calls f.operator()<T>() with the element type of a numeric dtype.
template <class F>
void with_number(DType type, F&& f) {
  with_stored(type, [&]<class T>() {
    if constexpr (!std::is_same_v<T, Truth>) {
      f.template operator()<T>();
    }
  });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
