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

// The division of a row for accesses of 16 bytes: elements up to the first multiple of 16 bytes,
// groups of kWidth elements, and the rest. Rows of any length and alignment have groups. If kWidth
// is 1, every element is a group.
template <int kWidth>
struct RowParts {
  uint64_t begin;  // of the groups
  uint64_t end;
  uint64_t n;

  template <class T>
  __device__ RowParts(const T* row, uint64_t length) : begin(0), n(length) {
    if constexpr (kWidth > 1) {
      static_assert(kWidth == kPack<T>);
      begin = min((16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T), length);
    }
    end = begin + (n - begin) / kWidth * kWidth;
  }
  // The element outside the groups that a thread processes: fewer than 2 kWidth threads have one.
  // Others get n.
  __device__ uint64_t single(unsigned lane) const {
    return lane < begin ? lane : min(end + (lane - begin), n);
  }
};

// Calls f.operator()<kMany>(i) for the elements [i, i + kMany) of the row of a team: kWidth
// elements of a group, or a single one. Rows of other operands with the same length may be accessed
// alike if they start at multiples of 16 bytes where this operand does.
template <unsigned kTeam, int kWidth, class T, class F>
__device__ void for_row(const T* row, uint64_t n, F&& f) {
  const unsigned lane = team_lane<kTeam>();
  const RowParts<kWidth> parts(row, n);
  for (uint64_t i = parts.begin + lane * kWidth; i < parts.end; i += kTeam * kWidth) {
    f.template operator()<kWidth>(i);
  }
  if constexpr (kWidth > 1) {
    if (parts.single(lane) < n) {
      f.template operator()<1>(parts.single(lane));
    }
  }
}

// Adds the kEach sums of each thread over the rows of a block, whose threads are arranged as rows
// of `width` threads, a power of two. The first `width` threads get the results. All threads of the
// block must call it; between two calls it needs a barrier.
template <int kEach>
__device__ void add_rows_of_block(unsigned width, float (&sum)[kEach]) {
  __shared__ Shared<float[kEach][kRowThreads]> parts;
  for (int k = 0; k < kEach; ++k) {
    parts[k][threadIdx.x] = sum[k];
  }
  for (unsigned half = kRowThreads / 2; half >= width; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      for (int k = 0; k < kEach; ++k) {
        parts[k][threadIdx.x] += parts[k][threadIdx.x + half];
      }
    }
  }
  if (threadIdx.x < width) {
    for (int k = 0; k < kEach; ++k) {
      sum[k] = parts[k][threadIdx.x];
    }
  }
}

// Column sums. The threads of a block are arranged as rows of `width` columns, a power of two. Adds
// term(i) for i in [begin, end) over the rows; the first `width` threads get the sums of their
// columns. All threads of the block must call it; between two calls it needs a barrier.
template <class F>
__device__ float column_sum(unsigned width, uint64_t begin, uint64_t end, F&& term) {
  constexpr unsigned kBatch = 4;  // terms that are loaded at once
  const unsigned rows = kRowThreads / width;
  float sum[1] = {};
  for (uint64_t i = begin + threadIdx.x / width; i < end; i += kBatch * rows) {
    float terms[kBatch];
    BOWLINE_UNROLL
    for (unsigned b = 0; b < kBatch; ++b) {
      terms[b] = i + b * rows < end ? term(i + b * rows) : 0.0f;
    }
    for (const float one : terms) {
      sum[0] += one;
    }
  }
  add_rows_of_block(width, sum);
  return threadIdx.x < width ? sum[0] : 0.0f;
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
// threads that access `width` elements at once: four, or 1. Both are integral constants.
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

// The same for kernels that take 16 bytes of elements of type T at once if `packs` is set.
template <class T, class K, class... A>
void launch_packed_rows(Launch& l, const char* name, uint64_t rows, uint64_t n, bool packs,
                        K kernel, A... args) {
  launch_rows(
      l, name, rows, n, packs,
      [kernel](auto team, auto width) {
        constexpr int kWidth = width() > 1 ? kPack<T> : 1;
        return kernel(team, std::integral_constant<int, kWidth>());
      },
      args...);
}

// Number of rows of the last axis; 0 for an empty tensor.
inline uint64_t rows_of(const Shape& shape) {
  return shape.elements() == 0 ? 0 : static_cast<uint64_t>(shape.rows());
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
