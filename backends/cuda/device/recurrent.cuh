// Recurrent layers: one cooperative launch runs all steps, with a barrier of the grid between them.
// A step is one phase; in a Gru without reset_after it is two. A GPU without cooperative launches
// takes one launch per phase. Values passed between phases are f32, in the workspace.
//
// A block computes a tile of units for groups of batch rows. It keeps the weights of its first tile
// on the chip: in shared memory, then in registers. It reads other weights again in each phase.
#pragma once

#include <algorithm>

#include "core/recurrent.h"
#include "device/grid_barrier.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kLanes;
constexpr unsigned kRows = 4;   // batch rows of a group
constexpr unsigned kUnits = 8;  // units of a tile
static_assert(kUnits == kWarps);

enum class Cell {
  lstm,
  gru,        // with reset_after
  gru_before  // without: r and z, and r * h, are a phase before n
};
constexpr uint32_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : 3; }

using Layer = RecurrentLayer;

__host__ __device__ inline uint32_t tiles_of(const Layer& layer) {
  return (layer.units + kUnits - 1) / kUnits;
}
__host__ __device__ inline uint32_t groups_of(const Layer& layer) {
  return (layer.batch + kRows - 1) / kRows;
}
// The distance of two rows of h in the workspace. The elements behind a row are zeros.
__host__ __device__ inline uint64_t pitch_of(const Layer& layer) {
  return uint64_t{tiles_of(layer)} * kUnits;
}
// The number of gradients of products that a group of rows exchanges, [gates * units, kRows].
__host__ __device__ inline uint64_t group_size(const Layer& layer) {
  return uint64_t{layer.gates} * layer.units * kRows;
}

// Calls f(tile, group, is_first) for the work of the block, which is the same in every phase. If
// there are more blocks than tiles, several blocks divide the groups of a tile. `is_first`: it is
// the block's first tile.
template <class F>
__device__ void for_each_item(const Layer& layer, F&& f) {
  const uint32_t tiles = tiles_of(layer);
  const uint32_t groups = groups_of(layer);
  const uint32_t sharers = max(gridDim.x / tiles, 1u);
  const uint32_t first = blockIdx.x % tiles;
  for (uint32_t tile = first; tile < tiles; tile += gridDim.x) {
    for (uint32_t group = blockIdx.x / tiles; group < groups; group += sharers) {
      f(tile, group, tile == first);
    }
  }
}

// The buffer of step i, of two that alternate. (An index would copy the operands of the kernel to
// local memory.)
__device__ inline Exchanged one_of(const Exchanged (&buffers)[2], uint64_t i) {
  return i % 2 == 0 ? buffers[0] : buffers[1];
}

// kPack<T> elements, of which `valid` exist. The others are zeros.
template <class T>
__device__ uint4 pack_from(const T* at, uint32_t valid, bool is_aligned) {
  if (is_aligned && valid >= kPack<T>) {
    return *reinterpret_cast<const uint4*>(at);
  }
  Some<T, kPack<T>> some;
  BOWLINE_UNROLL
  for (uint32_t i = 0; i < kPack<T>; ++i) {
    write(&some.x[i], i < valid ? read(at + i) : 0.0f);
  }
  return __builtin_bit_cast(uint4, some);
}

// Lanes at this distance share their sums: one gets the lower half of them, the other the rest.
template <unsigned kHalf, unsigned kCount>
__device__ void halve(float (&v)[kCount]) {
  const bool is_upper = (threadIdx.x & kHalf) != 0;
  BOWLINE_UNROLL
  for (unsigned i = 0; i < kHalf; ++i) {
    const float given = is_upper ? v[i] : v[i + kHalf];
    v[i] = (is_upper ? v[i + kHalf] : v[i]) + from_lane(given, kHalf);
  }
  if constexpr (kHalf > 1) {
    halve<kHalf / 2>(v);
  }
}
// Lane i of a team gets the sum of v[i % kCount] over its lanes. Both are powers of two.
template <unsigned kTeam, unsigned kCount>
__device__ float lane_sums(float (&v)[kCount]) {
  halve<kCount / 2>(v);
  float sum = v[0];
  BOWLINE_UNROLL
  for (unsigned distance = kCount; distance < kTeam; distance *= 2) {
    sum += from_lane(sum, distance);
  }
  return sum;
}

// Packs of weights of a thread, kPacks for each of its iterations over k. It keeps those of the
// first iterations in shared memory, and those of the next kHeld iterations in registers.
template <unsigned kPacks, unsigned kHeld>
class Weights {
 public:
  // load(iteration, pack) reads from device memory.
  template <class F>
  __device__ Weights(uint32_t in_shared, bool are_kept, uint32_t iterations, F&& load)
      : in_shared_(in_shared), are_kept_(are_kept), iterations_(iterations) {
    for (uint32_t i = 0; i < in_shared; ++i) {
      BOWLINE_UNROLL
      for (uint32_t p = 0; p < kPacks; ++p) {
        dynamic_shared().store(place(i, p), load(i, p));
      }
    }
    BOWLINE_UNROLL
    for (uint32_t i = 0; i < kHeld; ++i) {
      BOWLINE_UNROLL
      for (uint32_t p = 0; p < kPacks; ++p) {
        held_[i][p] = are_kept && in_shared + i < iterations ? load(in_shared + i, p) : uint4{};
      }
    }
  }

  // Calls add(iteration, packs) for packs [kFirst, kFirst + kCount) of each iteration, in order.
  // `is_first`: of the block's first tile.
  template <unsigned kFirst, unsigned kCount, class F, class G>
  __device__ void for_each(bool is_first, F&& load, G&& add) const {
    uint4 packs[kCount];
    const bool is_kept = is_first && are_kept_;
    const uint32_t in_shared = is_kept ? in_shared_ : 0;
    uint32_t i = 0;
    for (; i < in_shared; ++i) {
      BOWLINE_UNROLL
      for (uint32_t p = 0; p < kCount; ++p) {
        packs[p] = dynamic_shared().load(place(i, kFirst + p));
      }
      add(i, packs);
    }
    BOWLINE_ROLL
    for (; i < iterations_; ++i) {
      BOWLINE_UNROLL
      for (uint32_t p = 0; p < kCount; ++p) {
        packs[p] = is_kept && i < in_shared + kHeld ? held(i - in_shared, kFirst + p)
                                                    : load(i, kFirst + p);
      }
      add(i, packs);
    }
  }

 private:
  __device__ static int place(uint32_t i, uint32_t pack) {
    return static_cast<int>((i * kPacks + pack) * kThreads + threadIdx.x);
  }
  __device__ uint4 held(uint32_t i, uint32_t pack) const {
    uint4 at_i = held_[0][pack];
    BOWLINE_UNROLL
    for (uint32_t k = 1; k < kHeld; ++k) {
      at_i = i == k ? held_[k][pack] : at_i;
    }
    return at_i;
  }
  uint32_t in_shared_;
  bool are_kept_;
  uint32_t iterations_;
  uint4 held_[kHeld][kPacks];
};

// The phases of a launch, and where the block keeps weights.
struct Phases {
  uint64_t begin;
  uint64_t end;
  uint32_t in_shared;  // iterations over k whose weights are in shared memory
  bool keeps_weights;
  uint32_t* counters;
};

// The distance of the buffers in the workspace.
inline uint64_t floats(uint64_t n) { return buffer_bytes(n) / sizeof(float); }

// Launches all phases at once, or one after the other. `iterations` over k need `bytes` of weights
// each, of one thread.
template <class S>
void launch_phases(Launch& l, void (*kernel)(S, Phases), const S& s, uint64_t phases,
                   uint32_t iterations, unsigned bytes) {
  const Traits& t = l.traits();
  const uint32_t tiles = tiles_of(s.layer);
  const uint32_t groups = groups_of(s.layer);
  if (tiles == 0 || groups == 0) {
    return;
  }
  // One block per multiprocessor is always possible.
  const auto most = static_cast<uint32_t>(t.processors);
  const uint32_t blocks = tiles >= most ? most : tiles * std::min(groups, most / tiles);
  if (!t.has_cooperative_launch) {
    for (uint64_t phase = 0; phase < phases; ++phase) {
      l.launch("recurrent step", kernel, blocks, kThreads, s,
               Phases{phase, phase + 1, 0, false, l.block_counters()});
    }
    return;
  }
  constexpr unsigned kStatic = 2 << 10;  // shared memory of backward_kernel
  const uint32_t in_shared =
      std::min(iterations, (t.shared_bytes() - kStatic) / (bytes * kThreads));
  l.launch_together("recurrent layer", kernel, blocks, kThreads, in_shared * bytes * kThreads, s,
                    Phases{0, phases, in_shared, true, l.block_counters()});
}

// Offsets in a step have 64 bits; its rows and the rows of w have 32.
template <size_t kWeight>
const char* refusal(const NodeView& node) {
  return node.in(0)[1] > INT32_MAX || node.in(kWeight)[0] > INT32_MAX
             ? "A layer takes up to 2^31 sequences at once, and 2^31 rows of its weight."
             : nullptr;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent
