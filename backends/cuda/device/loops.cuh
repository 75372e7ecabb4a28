// Strided loops over up to eight axes, which are merged if the strides allow it.
#pragma once

#include <array>

#include "core/strides.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The axes of a loop, slowest first, with the strides of N operands. Kernels receive it by value.
template <int N>
struct Loops {
  int rank = 0;
  uint32_t sizes[kMaxRank] = {};
  int64_t strides[N][kMaxRank] = {};

  Loops() = default;
  // The axes of `dims`.
  Loops(const Shape& dims, const std::array<Strides, N>& operands) {
    for (int axis = 0; axis < dims.rank(); ++axis) {
      std::array<int64_t, N> step;
      for (size_t k = 0; k < N; ++k) {
        step[k] = operands[k][static_cast<size_t>(axis)];
      }
      add(dims[axis], step);
    }
  }

  // Adds the next faster axis.
  void add(int64_t size, std::array<int64_t, N> step) {
    if (size == 1) {
      return;
    }
    bool merges = rank > 0;
    for (int k = 0; k < N && merges; ++k) {
      merges = strides[k][rank - 1] == step[static_cast<size_t>(k)] * size;
    }
    if (merges && uint64_t{sizes[rank - 1]} * static_cast<uint64_t>(size) <= UINT32_MAX) {
      sizes[rank - 1] *= static_cast<uint32_t>(size);
    } else {
      sizes[rank] = static_cast<uint32_t>(size);
      ++rank;
    }
    for (int k = 0; k < N; ++k) {
      strides[k][rank - 1] = step[static_cast<size_t>(k)];
    }
  }

  // The offsets of element i of the loop.
  __device__ void offsets(uint64_t i, int64_t (&out)[N]) const {
    for (int k = 0; k < N; ++k) {
      out[k] = 0;
    }
    for (int axis = rank - 1; axis >= 0; --axis) {
      uint64_t at = 0;
      if (i <= UINT32_MAX) {  // a 32-bit division is several times cheaper
        const auto low = static_cast<uint32_t>(i);
        at = low % sizes[axis];
        i = low / sizes[axis];
      } else {
        at = i % sizes[axis];
        i /= sizes[axis];
      }
      for (int k = 0; k < N; ++k) {
        out[k] += static_cast<int64_t>(at) * strides[k][axis];
      }
    }
  }
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
