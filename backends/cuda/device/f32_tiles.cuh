// Tiles of a product that a block multiplies in f32, from panels in shared memory.
#pragma once

#include "device/splits.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The division of a product.
//
// A block computes kTile x kTile results, and a thread kEach x kEach of them. The block has kTeams
// teams of threads. Each team covers all results but only every kTeams-th step of k; the sums of
// the teams are added at the end. In one step, every thread loads one patch of 4 x 4 elements.
template <int kTile, int kEach, int kTeams>
struct F32Tiling {
  static constexpr int kSize = kTile;
  static constexpr int kAcross = kTile / kEach;  // threads along a side
  static constexpr int kTeam = kAcross * kAcross;
  static constexpr int kThreads = kTeam * kTeams;
  static constexpr int kStep = 8 * kTeam / kTile;
  static constexpr int kQuads = kTile / 4;  // groups of 4 rows
  static constexpr int kQuadsEach = kEach / 4;
  static constexpr int kSideSize = kStep * kQuads;  // float4 in shared memory
  static constexpr int kTeamSize = 2 * kSideSize;
  static constexpr int kBuffer = kTeams * kTeamSize;

  // The first groups of 4 rows and 4 columns of a thread. A warp has 4 x 8 groups.
  __device__ static int first_row(int thread) {
    return thread / 32 / (kAcross / 8) * 4 + thread % 32 / 8;
  }
  __device__ static int first_column(int thread) {
    return thread / 32 % (kAcross / 8) * 8 + thread % 8;
  }
};

// The patches of 4 x 4 elements that the threads of a team load. Threads that follow each other
// load elements that are near in memory: along the steps, or across them.
template <class T>
struct PatchPlace {
  int step;  // first of the patch, in a step of the team
  int quad;  // group of rows or columns
  __device__ PatchPlace(bool along, int patch)
      : step(4 * (along ? patch % (T::kStep / 4) : patch / T::kQuads)),
        quad(along ? patch / (T::kStep / 4) : patch % T::kQuads) {}
};

// The place of a block: tiles along the rows, then along the columns, then the parts, then the
// batch.
__device__ inline TilePlace place_of_block(const unsigned (&tiles)[2], unsigned splits,
                                           unsigned block) {
  const unsigned of_matrix = tiles[0] * tiles[1];
  const unsigned tile = block % of_matrix;
  const unsigned rest = block / of_matrix;
  const unsigned batch = rest / splits;
  return {{static_cast<int>(tile % tiles[0]), static_cast<int>(tile / tiles[0])},
          static_cast<int>(rest % splits),
          batch,
          batch * of_matrix + tile};
}

template <int kQuadsEach>
struct Fragment {
  float v[4 * kQuadsEach];
  __device__ void set(int quad, float4 x) {
    v[4 * quad] = x.x;
    v[4 * quad + 1] = x.y;
    v[4 * quad + 2] = x.z;
    v[4 * quad + 3] = x.w;
  }
};

// Adds the sums of the other teams to those of the first.
template <class T, class Memory, int kEach>
__device__ void add_teams(Memory& shared, float (&sum)[kEach][kEach], int team, int thread) {
  constexpr int kTeams = T::kThreads / T::kTeam;
  constexpr int kSums = kEach * T::kQuadsEach;  // float4 per thread
  static_assert((kTeams - 1) * T::kTeam * kSums <= 2 * T::kBuffer);
  for (int s = 0; s < kSums && team > 0; ++s) {
    const float* at = sum[s / T::kQuadsEach] + s % T::kQuadsEach * 4;
    shared[((team - 1) * kSums + s) * T::kTeam + thread] = make_float4(at[0], at[1], at[2], at[3]);
  }
  __syncthreads();
  for (int other = 0; other < kTeams - 1 && team == 0; ++other) {
    for (int s = 0; s < kSums; ++s) {
      const float4 more = shared[(other * kSums + s) * T::kTeam + thread];
      float* at = sum[s / T::kQuadsEach] + s % T::kQuadsEach * 4;
      at[0] += more.x;
      at[1] += more.y;
      at[2] += more.z;
      at[3] += more.w;
    }
  }
}

// Writes the sums of a thread, whose first groups of rows and columns in the tile are `mine`.
template <class T, class Results, int kEach>
__device__ void write_tile(const Results& results, const float (&sum)[kEach][kEach],
                           const TilePlace& place, const int (&mine)[2]) {
  // What follows the product is much code, so it is there once.
  BOWLINE_ROLL
  for (int s = 0; s < kEach * T::kQuadsEach; ++s) {
    const int i = s / T::kQuadsEach;
    const int column = place.tile[1] * T::kSize + 4 * (mine[1] + s % T::kQuadsEach * T::kAcross);
    const int row = place.tile[0] * T::kSize + 4 * (mine[0] + i / 4 * T::kAcross) + i % 4;
    float v[4] = {};
    BOWLINE_UNROLL
    for (int other = 0; other < kEach * T::kQuadsEach; ++other) {
      BOWLINE_UNROLL
      for (int e = 0; e < 4; ++e) {
        v[e] = other == s ? sum[other / T::kQuadsEach][other % T::kQuadsEach * 4 + e] : v[e];
      }
    }
    if (row < results.sizes[0] && column < results.sizes[1]) {
      results.put(place, row, column, v);
    }
  }
}

// Multiplies the panels of a team, from `at` on. The first groups of rows and columns of the thread
// are `mine`.
template <class T, class Memory, int kEach>
__device__ void multiply_step(Memory& shared, int at, const int (&mine)[2],
                              float (&sum)[kEach][kEach]) {
  BOWLINE_ROLL
  for (int quad = 0; quad < T::kStep / 2; ++quad) {
    BOWLINE_UNROLL
    for (int k = 2 * quad; k < 2 * quad + 2; ++k) {
      Fragment<T::kQuadsEach> a;
      Fragment<T::kQuadsEach> b;
      BOWLINE_UNROLL
      for (int q = 0; q < T::kQuadsEach; ++q) {
        const int from = at + k * T::kQuads;
        a.set(q, shared[from + ((mine[0] + q * T::kAcross) ^ quad / 2)]);
        b.set(q, shared[from + T::kSideSize + ((mine[1] + q * T::kAcross) ^ quad / 2)]);
      }
      BOWLINE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        BOWLINE_UNROLL
        for (int j = 0; j < kEach; ++j) {
          sum[i][j] += a.v[i] * b.v[j];
        }
      }
    }
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
