// Attention in f32 arithmetic, for every dtype, architecture and quantized format: loops over
// tiles.
//
// A block owns some rows of one head: queries, or keys in the pass for dk and dv. It iterates over
// the rows of the other kind, 64 at a time: it computes products of its rows with the other rows,
// weights from the products, and sums of the other rows times the weights.
#pragma once

#include <type_traits>

#include "device/attention.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {

constexpr int kThreads = 128;
constexpr int kDown = 8;     // threads along own rows
constexpr int kAcross = 16;  // threads along other rows, or along the head
constexpr int kOthers = 64;  // other rows per tile

// kPadded is the head size, rounded up. A thread owns kRows rows: the row of its index, and every
// kDown-th row from there.
template <int kPadded, int kRows>
struct Tiling {
  static constexpr int kOwn = kDown * kRows;
  static constexpr int kQuads = kPadded / 4;
  static constexpr int kQuadsEach = (kQuads + kAcross - 1) / kAcross;
  // Other rows pass through a buffer: all rows of a tile in parts of the head, or some whole rows
  // at a time.
  static constexpr int kPart = kPadded == 64 || kPadded == 128 ? 16 : 8;
  static constexpr int kLines = kOthers * kPart / kQuads;
  static constexpr int kBuffer = kOthers * kPart;
  static constexpr int kWeights = kOwn * kOthers / 4;
  static constexpr int kPerRow = kThreads / kOwn;  // threads that share a row in sums along it
};

using Quad = std::remove_extent_t<Shared<float4[1]>>;  // in shared memory

template <class T>
__device__ void load_own(Quad* own, const Rows& rows, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < T::kOwn * T::kQuads; i += kThreads) {
    own[i] = rows.quad(first + i / T::kQuads, i % T::kQuads);
  }
}

__device__ inline float dot(float4 a, float4 b, float sum) {
  sum += a.x * b.x;
  sum += a.y * b.y;
  sum += a.z * b.z;
  sum += a.w * b.w;
  return sum;
}

// With kSkip, a weight of 0 adds nothing, whatever v is.
template <bool kSkip>
__device__ inline void add(float4& sum, float weight, float4 v) {
  if (kSkip && weight == 0) {
    return;
  }
  sum.x += weight * v.x;
  sum.y += weight * v.y;
  sum.z += weight * v.z;
  sum.w += weight * v.w;
}

// dots[i][j] = own row i of this thread times row first + 4 across + j. Starts with a barrier.
template <class T, int kRows>
__device__ void multiply(const Quad* own, Quad* buffer, const Rows& others, int first,
                         float (&dots)[kRows][4]) {
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  BOWLINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    BOWLINE_UNROLL
    for (int j = 0; j < 4; ++j) {
      dots[i][j] = 0;
    }
  }
  const int quads = (others.dim + 3) / 4;
  for (int q0 = 0; q0 < quads; q0 += T::kPart) {
    __syncthreads();
    // Permuted, so that neighbouring threads, 4 rows apart, use different banks.
    for (int i = static_cast<int>(threadIdx.x); i < T::kBuffer; i += kThreads) {
      const int row = i / T::kPart;
      const int q = i % T::kPart;
      buffer[row * T::kPart + (q ^ (row / 4 % 8))] = others.quad(first + row, q0 + q);
    }
    __syncthreads();
    const int count = min(T::kPart, quads - q0);
    for (int q = 0; q < count; ++q) {
      float4 mine[kRows];
      BOWLINE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        mine[i] = own[(down + kDown * i) * T::kQuads + q0 + q];
      }
      BOWLINE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float4 other = buffer[(4 * across + j) * T::kPart + (q ^ (across % 8))];
        BOWLINE_UNROLL
        for (int i = 0; i < kRows; ++i) {
          dots[i][j] = dot(mine[i], other, dots[i][j]);
        }
      }
    }
  }
}

// sums[i][c] += rows [first, min(first + kOthers, end)), each times its weight in own row i, for
// quad across + kAcross c of the head. Starts with a barrier.
template <class T, bool kSkip, int kRows>
__device__ void add_rows_as(const Quad* weights, Quad* buffer, const Rows& others, int first,
                            int end, float4 (&sums)[kRows][T::kQuadsEach]) {
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  for (int line = 0; line < kOthers && first + line < end; line += T::kLines) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < T::kBuffer; i += kThreads) {
      buffer[i] = others.quad(first + line + i / T::kQuads, i % T::kQuads);
    }
    __syncthreads();
    for (int j = 0; j < T::kLines; j += 4) {
      float4 w[kRows];
      BOWLINE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        w[i] = weights[(down + kDown * i) * (kOthers / 4) + (line + j) / 4];
      }
      BOWLINE_UNROLL
      for (int c = 0; c < T::kQuadsEach; ++c) {
        const int q = across + kAcross * c;
        if (q >= T::kQuads) {
          continue;
        }
        const float4 v0 = buffer[j * T::kQuads + q];
        const float4 v1 = buffer[(j + 1) * T::kQuads + q];
        const float4 v2 = buffer[(j + 2) * T::kQuads + q];
        const float4 v3 = buffer[(j + 3) * T::kQuads + q];
        BOWLINE_UNROLL
        for (int i = 0; i < kRows; ++i) {
          add<kSkip>(sums[i][c], w[i].x, v0);
          add<kSkip>(sums[i][c], w[i].y, v1);
          add<kSkip>(sums[i][c], w[i].z, v2);
          add<kSkip>(sums[i][c], w[i].w, v3);
        }
      }
    }
  }
}

// `skip` is the same for all threads.
template <class T, int kRows>
__device__ void add_rows(const Quad* weights, Quad* buffer, const Rows& others, int first, int end,
                         float4 (&sums)[kRows][T::kQuadsEach], bool skip) {
  if (skip) {
    add_rows_as<T, true>(weights, buffer, others, first, end, sums);
  } else {
    add_rows_as<T, false>(weights, buffer, others, first, end, sums);
  }
}

template <class T, int kRows>
__device__ void clear(float4 (&sums)[kRows][T::kQuadsEach]) {
  BOWLINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    BOWLINE_UNROLL
    for (int c = 0; c < T::kQuadsEach; ++c) {
      sums[i][c] = make_float4(0, 0, 0, 0);
    }
  }
}

// Writes the sums of the own rows to `rows`.
template <class T, int kRows>
__device__ void write(const Rows& rows, const Target& to, int first,
                      const float4 (&sums)[kRows][T::kQuadsEach]) {
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  BOWLINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = first + down + kDown * i;
    BOWLINE_UNROLL
    for (int c = 0; c < T::kQuadsEach; ++c) {
      const int d = 4 * (across + kAcross * c);
      if (row >= rows.count || d >= rows.dim) {
        continue;
      }
      const int64_t at = rows.at(row, d);
      const float4 v = sums[i][c];
      if (rows.four) {
        to.put_four(at, v);
        continue;
      }
      const int left = rows.dim - d;
      to.put(at, v.x);
      if (left > 1) {
        to.put(at + 1, v.y);
      }
      if (left > 2) {
        to.put(at + 2, v.z);
      }
      if (left > 3) {
        to.put(at + 3, v.w);
      }
    }
  }
}

// Calls launch.operator()<head size, rounded up; rows of a thread>(). With enough rows, a block
// takes four rows per thread, for less traffic; otherwise two, for more blocks. Heads above
// kMostOfFour have no space for four. `rows` may be that of a candidate; 0: by shape.
template <int kMostOfFour, class F>
void with_tiling(const Problem& p, bool of_keys, int rows, F&& launch) {
  const auto choose = [&]<int kPadded>() {
    if constexpr (kPadded <= kMostOfFour) {
      Problem tiled = p;
      if (rows == 0 ? tile(tiled, of_keys, 4 * kDown) >= kFill : rows == 4) {
        return launch.template operator()<kPadded, 4>();
      }
    }
    launch.template operator()<kPadded, 2>();
  };
  with_padded(p, choose);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
