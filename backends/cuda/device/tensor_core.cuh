// Tensor cores: matrix instructions of a warp, and the shared memory that feeds them. ptx.cuh has
// the instructions, emu/tensor_core.h their emulation. This file has what both share.
//
// multiply_add<T>(sums, a, b), load_matrices and load_transposed are instructions of a warp: its 32
// lanes must call them together. Lane l is in group g = l / 4 and is number t = l % 4 there. Its
// registers hold these elements (PTX ISA, "Matrix fragments for mma.m16n8k16"):
//   a [16, 16]:   a[0]: row g, columns 2t and 2t + 1; a[1]: row g + 8; a[2], a[3]: columns + 8
//   b [16, 8]:    b[0]: rows 2t and 2t + 1, column g; b[1]: rows + 8
//   sums [16, 8]: sums[0], sums[1]: row g, columns 2t and 2t + 1; sums[2], sums[3]: row g + 8
// The first of two elements is in the low half of a register. So sums of a product, rounded to T,
// are a part of an operand a of the next product.
//
// TF32 (multiply_add<float>): a register holds one f32, of which the upper 19 bits count, so k has
// 8 elements (PTX ISA, "Matrix fragments for mma.m16n8k8"):
//   a [16, 8]:    a[0]: row g, column t; a[1]: row g + 8; a[2], a[3]: column + 4
//   b [8, 8]:     b[0]: row t, column g; b[1]: row + 4
//
// Which dtypes are possible depends on the code that the GPU runs: Traits::multiplies. A kernel for
// another dtype compiles for every architecture but must not run.
#pragma once

#include <cstring>
#include <type_traits>

#include "device/storage.cuh"
#ifndef BOWLINE_CUDA_EMULATED
#include "ptx.cuh"
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Two floats as elements of a register, rounded to nearest even; and back.
template <class T>
__device__ uint32_t pair_of(float low, float high) {
#ifdef BOWLINE_CUDA_EMULATED
  Some<T, 2> pair;
  write(&pair.x[0], low);
  write(&pair.x[1], high);
#else
  const auto pair = [&] {
    if constexpr (std::is_same_v<T, __half>) {
      return __floats2half2_rn(low, high);
    } else {
      return __floats2bfloat162_rn(low, high);
    }
  }();
#endif
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
template <class T>
__device__ float2 floats_of(uint32_t pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // the upper halves of f32
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000));
  }
  Some<T, 2> some;
  memcpy(&some, &pair, sizeof(pair));
  return make_float2(read(&some.x[0]), read(&some.x[1]));
}

// 16 bytes: 8 elements, rounded from f32 to nearest even.
template <class T>
__device__ uint4 pack_of(const float (&v)[8]) {
  return {pair_of<T>(v[0], v[1]), pair_of<T>(v[2], v[3]), pair_of<T>(v[4], v[5]),
          pair_of<T>(v[6], v[7])};
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
