// Elements as they are stored, from and into the f32 that kernels compute in.
#pragma once

#include "kernel.h"

namespace bowline::BOWLINE_CUDA_NAMESPACE {

// A truth value from outside is any byte.
struct Truth {
  uint8_t byte;
};

__device__ inline float read(const float* at) { return *at; }
__device__ inline float read(const __half* at) { return __half2float(*at); }
__device__ inline float read(const __nv_bfloat16* at) { return __bfloat162float(*at); }

__device__ inline void write(float* at, float x) { *at = x; }
__device__ inline void write(__half* at, float x) { *at = __float2half_rn(x); }
__device__ inline void write(__nv_bfloat16* at, float x) { *at = __float2bfloat16_rn(x); }

// `n` elements from `x` to `y`, in dtypes that may differ; they do not overlap. The kernel of Cast, and part of those that
// compute in f32 on operands of another dtype.
void convert(Launch& l, const void* x, DType x_type, void* y, DType y_type, uint64_t n);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
