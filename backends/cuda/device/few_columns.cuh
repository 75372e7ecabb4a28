// Products of a few rows with a weight that is [k, n]: a lane multiplies neighbours of a row of b.
#pragma once

#include <algorithm>

#include "device/begin.cuh"
#include "device/few_rows.cuh"
#include "device/last_block.cuh"
#include "device/matrix_vector.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels {

// kWidth neighbours of a row of b, of type T, as a packet.
template <class T, int kWidth>
struct Elements {
  static constexpr int kValues = kWidth;
  static constexpr bool kHasMinimum = false;
  static constexpr float scale = 1;

  Some<T, kWidth> some;

  __device__ static const T* address(const Codes& c, int64_t row, uint32_t column) {
    return reinterpret_cast<const T*>(c.codes + row * c.row_bytes) + column;
  }
  __device__ void load(const Codes& c, int64_t row, uint32_t column) {
    some = *reinterpret_cast<const Some<T, kWidth>*>(address(c, row, column));
  }
  __device__ void values(int, float (&to)[kWidth]) const {
    for (int e = 0; e < kWidth; ++e) {
      to[e] = read(&some.x[e]);
    }
  }
};
template <class P>
constexpr bool kIsPlain = false;
template <class T, int kWidth>
constexpr bool kIsPlain<Elements<T, kWidth>> = true;

// A quantized value as a packet.
struct OneValue {
  static constexpr int kValues = 1;
  static constexpr bool kHasMinimum = false;
  static constexpr float scale = 1;

  float value;

  __device__ void load(const Codes& c, int64_t row, uint32_t column) {
    value = decode(c, row, column);
  }
  __device__ void values(int, float (&to)[1]) const { to[0] = value; }
};

// The division of a product with rows of b, which is [k, n]. A block multiplies kColumns columns
// with kRows rows of a, over one part of k.
template <class P>
struct ColumnTiling {
  static constexpr int kPieces = P::kValues > kPiece ? P::kValues / kPiece : 1;
  static constexpr int kWidth = P::kValues / kPieces;
  // Packets along a row of b: 64 bytes of 16-bit elements, at least 128 of others.
  static constexpr int kAcross = P::kValues == 8 ? 4 : P::kValues == 1 ? 32 : 8;
  static constexpr int kDown = kThreads / kAcross;
  static constexpr int kColumns = kAcross * P::kValues;
  static constexpr int kAtOnce = P::kValues > 8 ? 2 : 4;  // loads of a thread
  static constexpr int kMostRows = P::kValues > 8 ? 64 / P::kValues : static_cast<int>(kFewRows);
  // Rows of the kernel for a single row of a. Quantized values take longer to decode than to
  // multiply with kMostRows rows, so they have no kernel of their own for it.
  static constexpr int kLeastRows = kIsPlain<P> ? 1 : kMostRows;
};
constexpr int kMostColumns = 256;    // of a tile
constexpr int kElementColumns = 32;  // of a tile, if b is not quantized
struct ColumnParts {
  int tiles[kParts];  // of the parts
  int k;              // rows of b per part of k
  unsigned splits;    // parts of k
  float* sums;        // [splits, m, n], if there are several
  uint32_t* counters;
};
constexpr int kStaged = 256;     // elements of a row of a in shared memory
constexpr int kMostSplits = 16;  // parts of k
constexpr int kLeastDepth = 64;  // rows of b per part of k
// Blocks per processor that the parts of k aim at, by candidate.
constexpr int64_t kBlocksWanted[kWaysOfColumns] = {1, 2, 4, 8};
constexpr uint32_t kUsualBlocks = 2;  // without a candidate

// Parts of k of a product with n columns, in tiles of `columns`.
inline int splits_of(int64_t n, int64_t k, int columns, const Traits& traits, uint32_t candidate) {
  const auto tiles =
      static_cast<int64_t>(blocks_for(static_cast<uint64_t>(n), static_cast<uint64_t>(columns)));
  const bool is_known = candidate < kWaysOfColumns;
  const int64_t blocks = kBlocksWanted[is_known ? candidate : kUsualBlocks] * traits.processors;
  const int64_t wanted = (blocks + tiles - 1) / std::max<int64_t>(tiles, 1);
  return static_cast<int>(
      std::clamp<int64_t>(std::min(wanted, k / kLeastDepth), 1, int64_t{kMostSplits}));
}

// Adds the sums of the lanes of each warp that have the same columns, and writes them to `totals`,
// float[kWarps][kRows][columns of a tile]. All threads of the block must call it.
template <class P, int kRows, class Memory>
__device__ void add_threads(Memory& totals, const float (&sums)[kRows][P::kValues]) {
  constexpr int kAcross = ColumnTiling<P>::kAcross;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  BOWLINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    BOWLINE_UNROLL
    for (int c = 0; c < P::kValues; ++c) {
      float sum = sums[r][c];
      for (int other = kAcross; other < 32; other *= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, other);
      }
      if (lane < kAcross) {
        totals[threadIdx.x / 32][r][lane * P::kValues + c] = sum;
      }
    }
  }
  __syncthreads();
}

// The columns of a thread, and its part of k.
template <class P>
struct Columns {
  int part = 0;
  int skipped = 0;  // results of the parts before
  int tile = static_cast<int>(blockIdx.x);
  int n;
  int column;
  uint32_t at;  // the column in a row of b
  int begin;
  int end;
  Codes codes;

  __device__ Columns(const Operands& p, const ColumnParts& s) {
    using T = ColumnTiling<P>;
    BOWLINE_UNROLL
    for (int i = 0; i + 1 < kParts; ++i) {
      if (part == i && i + 1 < p.count && tile >= s.tiles[i]) {
        part = i + 1;
        tile -= s.tiles[i];
        skipped += p.parts[i].n;
      }
    }
    n = p.of(part, &Part::n);
    column = tile * T::kColumns + static_cast<int>(threadIdx.x) % T::kAcross * P::kValues;
    at = static_cast<uint32_t>(column + p.of(part, &Part::first));
    codes = p.codes(part);
    begin = static_cast<int>(blockIdx.z) * s.k;
    end = min(begin + s.k, p.k);
  }
  // Only elements: those of a quantized row do not lie side by side.
  __device__ void prefetch_all() const {
    using T = ColumnTiling<P>;
    if constexpr (requires { P::address(codes, 0, at); }) {
      const int first = begin + static_cast<int>(threadIdx.x) / T::kAcross;
      for (int i = first; i < end && column < n; i += T::kDown) {
        prefetch(P::address(codes, i, at));
      }
    }
  }
};

template <class P, int kRows>
__global__ void __launch_bounds__(kThreads, kRows == 1 ? 4 : 2)
    columns_kernel(Operands p, ColumnParts s) {
  begin_kernel([&] { Columns<P>(p, s).prefetch_all(); });
  using T = ColumnTiling<P>;
  __shared__ Shared<float[kRows][kStaged]> a;
  __shared__ Shared<float[kRows][2]> norms;
  __shared__ Shared<float[kWarps][kRows][T::kColumns]> totals;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kRows;  // of a
  const Columns<P> own(p, s);
  if (p.gamma != nullptr) {
    take_statistics<kRows>(norms, p, row);
  }
  float sums[kRows][P::kValues] = {};
  for (int first = own.begin; first < own.end; first += kStaged) {
    const int count = min(kStaged, own.end - first);
    __syncthreads();
    BOWLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BOWLINE_ROLL
      for (int i = thread; i < count && row + r < p.m; i += kThreads) {
        a[r][i] = element_of(p, norms[r], row + r, first + i);
      }
    }
    __syncthreads();
    for (int i = thread / T::kAcross; i < count && own.column < own.n; i += T::kDown * T::kAtOnce) {
      P packets[T::kAtOnce] = {};
      BOWLINE_UNROLL
      for (int e = 0; e < T::kAtOnce; ++e) {
        if (i + e * T::kDown < count) {
          packets[e].load(own.codes, first + i + e * T::kDown, own.at);
        }
      }
      BOWLINE_UNROLL
      for (int e = 0; e < T::kAtOnce; ++e) {
        const int of = i + e * T::kDown;
        float x[kRows];
        BOWLINE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          x[r] = of < count && row + r < p.m ? static_cast<float>(a[r][of]) : 0.0f;
          if constexpr (!P::kHasMinimum) {
            x[r] *= packets[e].scale;
          }
        }
        BOWLINE_UNROLL
        for (int piece = 0; piece < T::kPieces; ++piece) {
          float w[T::kWidth];
          packets[e].values(piece, w);
          if constexpr (P::kHasMinimum) {
            BOWLINE_UNROLL
            for (float& v : w) {
              v = packets[e].scale * v - packets[e].least;
            }
          }
          BOWLINE_UNROLL
          for (int r = 0; r < kRows; ++r) {
            BOWLINE_UNROLL
            for (int c = 0; c < T::kWidth; ++c) {
              sums[r][piece * T::kWidth + c] += x[r] * w[c];
            }
          }
        }
      }
    }
  }
  add_threads<P>(totals, sums);
  // Result i of the tile, from the warps of this block.
  const auto total = [&](int i) {
    float sum = totals[0][i / T::kColumns][i % T::kColumns];
    for (int other = 1; other < kWarps; ++other) {
      sum += totals[other][i / T::kColumns][i % T::kColumns];
    }
    return sum;
  };
  // Calls f(i, row of a, column of the part) for the results of the tile.
  const auto for_results = [&](auto&& f) {
    BOWLINE_ROLL
    for (int i = thread; i < kRows * T::kColumns; i += kThreads) {
      const int r = row + i / T::kColumns;
      const int c = own.tile * T::kColumns + i % T::kColumns;
      if (r < p.m && c < own.n) {
        f(i, r, c);
      }
    }
  };
  const auto partial_at = [&](unsigned split, int r, int c) {
    return (int64_t{split} * p.m + r) * p.n + own.skipped + c;
  };
  if (s.splits > 1) {
    for_results([&](int i, int r, int c) { s.sums[partial_at(blockIdx.z, r, c)] = total(i); });
    if (!arrives_last(s.counters + blockIdx.y * gridDim.x + blockIdx.x, s.splits)) {
      return;
    }
  }
  for_results([&](int i, int r, int c) {
    float sum = 0;
    for (unsigned split = 0; split < s.splits && s.splits > 1; ++split) {
      sum += s.sums[partial_at(split, r, c)];
    }
    put_sum(p, r, {own.part, c}, s.splits > 1 ? sum : total(i), 0);
  });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels
