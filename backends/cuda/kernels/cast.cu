//! ops(any) Cast
// Conversion between all dtypes. runtime/ops/cast.cpp defines the conversions. Kernels between
// floats access up to 16 bytes at once. The others are one kernel per source dtype, with four
// elements per thread; the target dtype is the same for all threads.
#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cast_kernels {
namespace {

// An intermediate value: a float, or a 64-bit integer.
struct Number {
  bool is_float;
  float f;
  int64_t n;
};

__device__ inline Number of_float(float x) { return {true, x, 0}; }
__device__ inline Number number(float x) { return of_float(x); }
__device__ inline Number number(__half x) { return of_float(read(&x)); }
__device__ inline Number number(__nv_bfloat16 x) { return of_float(read(&x)); }
__device__ inline Number number(Truth x) { return {false, 0, x.byte != 0 ? 1 : 0}; }
template <class T>
__device__ inline Number number(T x) {
  return {false, 0, static_cast<int64_t>(x)};
}

__device__ inline float as_float(Number x) { return x.is_float ? x.f : static_cast<float>(x.n); }

// Rounds a float towards zero and saturates it to [-2^bits, 2^bits). NaN gives 0.
template <class T>
__device__ inline T as_integer(Number x, float least, float past, T lowest, T highest) {
  if (!x.is_float) {
    return static_cast<T>(x.n);
  }
  return x.f != x.f ? T{0} : x.f >= past ? highest : x.f <= least ? lowest : static_cast<T>(x.f);
}

__device__ inline void store(Number x, DType type, void* y, uint64_t i) {
  switch (type) {
    case DType::f32:
      static_cast<float*>(y)[i] = as_float(x);
      break;
    case DType::f16:
      write(static_cast<__half*>(y) + i, as_float(x));
      break;
    case DType::bf16:
      write(static_cast<__nv_bfloat16*>(y) + i, as_float(x));
      break;
    case DType::i8:
      static_cast<int8_t*>(y)[i] = as_integer<int8_t>(x, -128.0f, 127.0f, -128, 127);
      break;
    case DType::u8:
      static_cast<uint8_t*>(y)[i] = as_integer<uint8_t>(x, 0.0f, 255.0f, 0, 255);
      break;
    case DType::i32:
      static_cast<int32_t*>(y)[i] =
          as_integer<int32_t>(x, -2147483648.0f, 2147483648.0f, INT32_MIN, INT32_MAX);
      break;
    case DType::i64:
      static_cast<int64_t*>(y)[i] = as_integer<int64_t>(
          x, -9223372036854775808.0f, 9223372036854775808.0f, INT64_MIN, INT64_MAX);
      break;
    case DType::boolean:
      static_cast<uint8_t*>(y)[i] = (x.is_float ? x.f != 0 : x.n != 0) ? 1 : 0;
      break;
  }
}

template <class From>
__global__ void cast_kernel(const From* x, void* y, DType type, uint64_t n) {
  begin_kernel();
  for_elements(n, [&](uint64_t i) { store(number(x[i]), type, y, i); });
}

// Between floats of 16 and 32 bits: 16 bytes of the narrow ones per thread.
constexpr unsigned kFloatsEach = 8;
template <class From, class To>
__global__ void cast_floats_kernel(const From* x, To* y, uint64_t n, bool packs) {
  begin_kernel();
  for_elements<kFloatsEach>(
      n, packs, [&](uint64_t i) { write(y + i, read(x + i)); },
      [&](uint64_t i) {
        float v[kFloatsEach];
        read_some(x + i, v);
        write_some(y + i, v);
      });
}

void cast(Launch& l) {
  convert(l, l.in(0), l.in_type(0), l.out(0), l.out_type(0),
          static_cast<uint64_t>(l.out_shape(0).elements()));
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cast_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

void convert(Launch& l, const void* x, DType x_type, void* y, DType y_type, uint64_t n) {
  if (is_float(x_type) && is_float(y_type)) {
    with_float(x_type, [&]<class From>() {
      with_float(y_type, [&]<class To>() {
        using namespace cast_kernels;
        l.launch("cast", cast_floats_kernel<From, To>, element_blocks(n, kFloatsEach),
                 kElementThreads, static_cast<const From*>(x), static_cast<To*>(y), n,
                 aligned16(x, y));
      });
    });
    return;
  }
  with_stored(x_type, [&]<class From>() {
    l.launch("cast", cast_kernels::cast_kernel<From>, element_blocks(n), kElementThreads,
             static_cast<const From*>(x), y, y_type, n);
  });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cast_kernels {

BOWLINE_KERNEL(cast, .run = cast);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cast_kernels
