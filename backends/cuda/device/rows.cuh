// A team of threads, a warp or a block, processes a row together. All sums are fixed trees.
#pragma once

#include <type_traits>

#include "device/elements.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr unsigned kLanes = 32;
constexpr unsigned kRowThreads = 256;
constexpr uint64_t kLongestOfWarp = 1024;  // elements per row; a longer row gets a block

// The row of this thread, and its position in the team.
template <unsigned kTeam>
__device__ uint64_t team_row() {
  return uint64_t{blockIdx.x} * (kRowThreads / kTeam) + threadIdx.x / kTeam;
}
template <unsigned kTeam>
__device__ unsigned team_lane() {
  return threadIdx.x % kTeam;
}

// Combines the values of the first `lanes` lanes of each part of the warp with f. Every lane gets
// the same bits.
template <class X>
__device__ X from_lane(X x, unsigned distance) {
  return __shfl_xor_sync(0xFFFFFFFF, x, static_cast<int>(distance));
}
template <class X, class F>
__device__ X reduce_lanes(X x, F f, unsigned lanes) {
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2) {
    x = f(x, from_lane(x, distance));
  }
  return x;
}

// Combines the values of the team with f. All threads of the team must call it.
template <unsigned kTeam, class X, class F>
__device__ X reduce_team(X x, F f) {
  x = reduce_lanes(x, f, kLanes);
  if constexpr (kTeam > kLanes) {
    constexpr unsigned kWarps = kTeam / kLanes;
    __shared__ Shared<X[kWarps]> parts;
    __syncthreads();  // the parts of an earlier call are already read
    if (threadIdx.x % kLanes == 0) {
      parts[threadIdx.x / kLanes] = x;
    }
    __syncthreads();
    x = reduce_lanes(static_cast<X>(parts[threadIdx.x % kWarps]), f, kWarps);
  }
  return x;
}
template <unsigned kTeam>
__device__ float team_sum(float x) {
  return reduce_team<kTeam>(x, [](float a, float b) { return a + b; });
}
template <unsigned kTeam>
__device__ float team_max(float x) {
  return reduce_team<kTeam>(x, [](float a, float b) { return fmaxf(a, b); });
}

// Column sums. The threads of a block are arranged as rows of `width` columns, a power of two. Adds
// term(i) for i in [begin, end) over the rows; the first `width` threads get the sums of their
// columns. All threads of the block must call it.
template <class F>
__device__ float column_sum(unsigned width, uint64_t begin, uint64_t end, F&& term) {
  __shared__ Shared<float[kRowThreads]> parts;
  float sum = 0;
  for (uint64_t i = begin + threadIdx.x / width; i < end; i += kRowThreads / width) {
    sum += term(i);
  }
  parts[threadIdx.x] = sum;
  for (unsigned half = kRowThreads / 2; half >= width; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      parts[threadIdx.x] += parts[threadIdx.x + half];
    }
  }
  return threadIdx.x < width ? static_cast<float>(parts[threadIdx.x]) : 0.0f;
}

// Columns per block for sums of `columns` columns.
inline unsigned column_width(uint64_t columns, unsigned most) {
  unsigned width = most;
  while (width > 1 && width / 2 >= columns) {
    width /= 2;
  }
  return width;
}

// Launches a kernel over rows of n elements. kernel(team, width) selects it for teams of `team`
// threads that access `width` elements at once; both are integral constants.
template <class K, class... A>
void launch_rows(Launch& l, const char* name, uint64_t rows, uint64_t n, bool four, K kernel,
                 A... args) {
  constexpr std::integral_constant<unsigned, kLanes> warp;
  constexpr std::integral_constant<unsigned, kRowThreads> block;
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 4> quad;
  if (n <= kLongestOfWarp) {
    const dim3 grid = blocks_for(rows, kRowThreads / kLanes);
    l.launch(name, four ? kernel(warp, quad) : kernel(warp, one), grid, kRowThreads, args...);
  } else {
    const dim3 grid = blocks_for(rows, 1);
    l.launch(name, four ? kernel(block, quad) : kernel(block, one), grid, kRowThreads, args...);
  }
}

// Number of rows of the last axis; 0 for an empty tensor.
inline uint64_t rows_of(const Shape& shape) {
  return shape.elements() == 0 ? 0 : static_cast<uint64_t>(shape.rows());
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
