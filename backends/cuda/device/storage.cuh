// Converts stored elements to and from f32, in which kernels compute.
#pragma once

#include "core/element_types.h"
#include "device/wide.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Calls f.operator()<T>() with the type of the elements of a dtype.
template <class F>
void with_stored(DType type, F&& f) {
  with_type(type, [&]<class T>() {
    if constexpr (std::is_same_v<T, f16>) {
      f.template operator()<__half>();
    } else if constexpr (std::is_same_v<T, bf16>) {
      f.template operator()<__nv_bfloat16>();
    } else {
      f.template operator()<T>();
    }
  });
}

// The same for a float dtype.
template <class F>
void with_float(DType type, F&& f) {
  if (type == DType::f16) {
    f.template operator()<__half>();
  } else if (type == DType::bf16) {
    f.template operator()<__nv_bfloat16>();
  } else {
    f.template operator()<float>();
  }
}

// The number of elements in 16 bytes, the widest access of a thread.
template <class T>
constexpr int kPack = static_cast<int>(16 / sizeof(T));

__device__ inline float read(const float* at) { return *at; }
__device__ inline float read(const __half* at) { return __half2float(*at); }
__device__ inline float read(const __nv_bfloat16* at) { return __bfloat162float(*at); }

__device__ inline void write(float* at, float x) { *at = x; }
__device__ inline void write(__half* at, float x) { *at = __float2half_rn(x); }
__device__ inline void write(__nv_bfloat16* at, float x) { *at = __float2bfloat16_rn(x); }

// The dtype of elements of type T.
template <class T>
constexpr DType kTypeOf = std::is_same_v<T, float>    ? DType::f32
                          : std::is_same_v<T, __half> ? DType::f16
                                                      : DType::bf16;
// Element i of a float dtype. The dtype must be the same for all threads.
__device__ inline float read(const void* at, DType type, int64_t i) {
  return type == DType::f32   ? read(static_cast<const float*>(at) + i)
         : type == DType::f16 ? read(static_cast<const __half*>(at) + i)
                              : read(static_cast<const __nv_bfloat16*>(at) + i);
}
__device__ inline void write(void* at, DType type, int64_t i, float x) {
  type == DType::f32   ? write(static_cast<float*>(at) + i, x)
  : type == DType::f16 ? write(static_cast<__half*>(at) + i, x)
                       : write(static_cast<__nv_bfloat16*>(at) + i, x);
}

// kWidth elements, a power of two, at an address that is a multiple of their size. More than 16
// bytes are several accesses.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Some {
  T x[kWidth];
};
template <class T, int kWidth>
__device__ void read_some(const T* at, float (&v)[kWidth]) {
  constexpr int kHere = kWidth < kPack<T> ? kWidth : kPack<T>;
  for (int first = 0; first < kWidth; first += kHere) {
    const auto some = *reinterpret_cast<const Some<T, kHere>*>(at + first);
    for (int k = 0; k < kHere; ++k) {
      v[first + k] = read(&some.x[k]);
    }
  }
}
// The elements of 16 bytes that were loaded as such.
template <class T>
__device__ void unpack(uint4 pack, float (&v)[kPack<T>]) {
  const auto some = __builtin_bit_cast(Some<T, kPack<T>>, pack);
  BOWLINE_UNROLL
  for (int k = 0; k < kPack<T>; ++k) {
    v[k] = read(&some.x[k]);
  }
}
template <class T, int kWidth>
__device__ void write_some(T* at, const float (&v)[kWidth]) {
  constexpr int kHere = kWidth < kPack<T> ? kWidth : kPack<T>;
  for (int first = 0; first < kWidth; first += kHere) {
    Some<T, kHere> some;
    for (int k = 0; k < kHere; ++k) {
      write(&some.x[k], v[first + k]);
    }
    // nvcc stores a structure member by member.
    if constexpr (sizeof(some) == 16) {
      *reinterpret_cast<uint4*>(at + first) = __builtin_bit_cast(uint4, some);
    } else if constexpr (sizeof(some) == 8) {
      *reinterpret_cast<uint64_t*>(at + first) = __builtin_bit_cast(uint64_t, some);
    } else {
      *reinterpret_cast<Some<T, kHere>*>(at + first) = some;
    }
  }
}

// Converts `n` elements from `x` to `y`, which do not overlap and may have different dtypes. It is
// the kernel of Cast, and part of kernels that compute in f32 on operands of another dtype.
void convert(Launch& l, const void* x, DType x_type, void* y, DType y_type, uint64_t n);

using Wide = device::Wide<Launch>;

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
