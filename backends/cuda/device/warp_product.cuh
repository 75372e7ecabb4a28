// The part of a product that a warp multiplies on tensor cores.
#pragma once

#include "device/panels.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The sums of the lines of an operand, which matrix instructions multiply with ones. A warp has
// kTiles tiles of 16 lines. The warps with the same tiles, kWays, share them.
template <class T, bool kOfA, int kTiles, int kWays>
class LinesOfWarp {
 public:
  static_assert(kTiles % kWays == 0);

  // `way`: the number of this warp among those that share. If the compiler knew that a warp has
  // neighbouring tiles, it would index them, in memory.
  __device__ explicit LinesOfWarp(int way)
      : way_(way), own_(opaque(((1 << kEach) - 1) << way * kEach)) {}

  // The tiles of both operands.
  template <int kTilesA, int kTilesB>
  __device__ void add(const uint32_t (&a)[kTilesA][4], const uint32_t (&b)[kTilesB][4]) {
    if constexpr (kOfA) {
      add_tiles(a);
    } else {
      add_tiles(b);
    }
  }

  // Calls put(line, sum) for the lines of the warp. `first`: the first line of its tiles.
  template <class F>
  __device__ void for_each(int first, F&& put) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    BOWLINE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const float sum = of_lanes(sums_[i][0]);
      const float next = of_lanes(sums_[i][2]);
      if (lane % 4 == 0) {
        const int line = first + 16 * (way_ * kEach + i) + lane / 4;
        put(line, sum);
        put(line + 8, next);
      }
    }
  }

 private:
  // TF32 would round the elements, so each lane adds its own f32.
  static constexpr bool kAdds = std::is_same_v<T, float>;

  __device__ void add_tiles(const uint32_t (&tiles)[kTiles][4]) {
    uint32_t ones = 0;
    if constexpr (!kAdds) {
      ones = pair_of<T>(1, 1);
    }
    BOWLINE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if ((own_ >> i & 1) != 0) {
        const auto& t = tiles[i];
        float(&sums)[4] = sums_[i % kEach];
        constexpr int kSecond = kOfA ? 1 : 2;  // tiles of b have their words in another order
        if constexpr (kAdds) {
          sums[0] += __uint_as_float(t[0]) + __uint_as_float(t[3 - kSecond]);
          sums[2] += __uint_as_float(t[kSecond]) + __uint_as_float(t[3]);
        } else {
          multiply_add<T>(sums, {t[0], t[kSecond], t[3 - kSecond], t[3]}, {ones, ones});
        }
      }
    }
  }
  // The sum of a line. A matrix instruction has already added the elements of all lanes.
  __device__ static float of_lanes(float sum) {
    if constexpr (kAdds) {
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    }
    return sum;
  }

  static constexpr int kEach = kTiles / kWays;
  int way_;
  int own_;  // a bit per tile
  float sums_[kEach][4] = {};
};

template <int kTiles>
__device__ void round_to_tf32(uint32_t (&tiles)[kTiles][4]) {
  BOWLINE_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    BOWLINE_UNROLL
    for (int e = 0; e < 4; ++e) {
      tiles[i][e] = to_tf32(tiles[i][e]);
    }
  }
}

// TF32: sums the lines of the operands, and then rounds the operands. Other dtypes are not rounded.
template <class T, class L, int kTilesA, int kTilesB>
__device__ void round_operands(L& lines, bool sums_lines, uint32_t (&a)[kTilesA][4],
                               uint32_t (&b)[kTilesB][4]) {
  if constexpr (std::is_same_v<T, float>) {
    if (sums_lines) {
      lines.add(a, b);
    }
    round_to_tf32(a);
    round_to_tf32(b);
  }
}

// The operand whose lines are summed.
enum class Summed { none, a, b };

// The sums of a warp, in registers, and the operands of a step of k and of the next one. A and B
// are panels, whose lines are along k or not.
template <class T, class Tile, class A, class B, bool kAlongA, bool kAlongB, Summed kSummed>
class WarpProduct {
 public:
  static constexpr int kTilesM = Tile::kWarpM / 16;
  static constexpr int kTilesN = Tile::kWarpN / 8;
  static constexpr int kSteps = A::kSteps;  // of a panel

  // The tiles at the edges of y sum lines.
  __device__ WarpProduct(int warp, bool sums_lines)
      : row_(warp / Tile::kAcross * Tile::kWarpM),
        column_(warp % Tile::kAcross * Tile::kWarpN),
        of_a_(row_),
        of_b_(column_),
        lines_(kOfA ? warp % Tile::kAcross : warp / Tile::kAcross),
        sums_lines_(kSummed != Summed::none && sums_lines) {}

  // Loads a part of the operands of a step: part `part` of kTilesM.
  __device__ void load(const Packs& a, const Packs& b, int step, int part) {
    constexpr int kLoads = kTilesN / 2 + kTilesM;
    BOWLINE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      if (i * kTilesM / kLoads != part) {
        continue;
      }
      if (i < kTilesN / 2) {
        of_b_.load(b_[step % 2][i], b, step, i);
      } else {
        of_a_.load(a_[step % 2][i - kTilesN / 2], a, step, i - kTilesN / 2);
      }
    }
  }
  __device__ void load_first(const Packs& a, const Packs& b) {
    BOWLINE_UNROLL
    for (int part = 0; part < kTilesM; ++part) {
      load(a, b, 0, part);
    }
  }
  // Multiplies the operands of a step. Before row i of the tiles, meanwhile(i) issues other work.
  template <class F>
  __device__ void multiply(int step, const F& meanwhile) {
    uint32_t(&a)[kTilesM][4] = a_[step % 2];
    uint32_t(&b)[kTilesN / 2][4] = b_[step % 2];
    round_operands<T>(lines_, sums_lines_, a, b);
    BOWLINE_UNROLL
    for (int i = 0; i < kTilesM; ++i) {
      meanwhile(i);
      BOWLINE_UNROLL
      for (int j = 0; j < kTilesN; ++j) {
        multiply_add<T>(sums_[i][j], a[i], {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
      }
    }
    if (!std::is_same_v<T, float> && sums_lines_) {
      lines_.add(a, b);
    }
  }

  // The first row and column in the tile of the block.
  __device__ int row() const { return row_; }
  __device__ int column() const { return column_; }
  __device__ const float (&sums() const)[kTilesM][kTilesN][4] { return sums_; }
  // Calls put(line, sum) for the sums of lines. `first`: the first line of the block.
  template <class F>
  __device__ void for_each_line(int first, F&& put) const {
    if (sums_lines_) {
      lines_.for_each(first + (kOfA ? row_ : column_), put);
    }
  }

 private:
  static constexpr bool kOfA = kSummed == Summed::a;
  static constexpr int kAbove = Tile::kM / Tile::kWarpM;

  int row_;
  int column_;
  Fragments<A, kAlongA, true, kTilesM> of_a_;
  Fragments<B, kAlongB, false, kTilesN / 2> of_b_;
  LinesOfWarp<T, kOfA, kOfA ? kTilesM : kTilesN / 2, kOfA ? Tile::kAcross : kAbove> lines_;
  bool sums_lines_;
  uint32_t a_[2][kTilesM][4];
  uint32_t b_[2][kTilesN / 2][4];
  float sums_[kTilesM][kTilesN][4] = {};
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
