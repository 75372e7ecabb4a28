//! ops(f32, f16, bf16) Lstm LstmGrad Gru GruGrad
// Recurrent layers: one cooperative launch runs all steps, with a barrier of the grid between them.
// A step is one phase; in a Gru without reset_after it is two. A GPU without cooperative launches
// takes one launch per phase. Values passed between phases are f32, in the workspace.
//
// A block computes a tile of units for groups of batch rows. It keeps the weights of its first tile
// on the chip: in shared memory, then in registers. It reads other weights again in each phase.
#include <algorithm>

#include "core/recurrent.h"
#include "device/grid_barrier.cuh"
#include "device/math.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_kernels {
namespace {

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

__host__ __device__ uint32_t tiles_of(const Layer& layer) {
  return (layer.units + kUnits - 1) / kUnits;
}
__host__ __device__ uint32_t groups_of(const Layer& layer) {
  return (layer.batch + kRows - 1) / kRows;
}
// The distance of two rows of h in the workspace. The elements behind a row are zeros.
__host__ __device__ uint64_t pitch_of(const Layer& layer) {
  return uint64_t{tiles_of(layer)} * kUnits;
}
// The number of gradients of products that a group of rows exchanges, [gates * units, kRows].
__host__ __device__ uint64_t group_size(const Layer& layer) {
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
template <class T>
__device__ void unpack(uint4 pack, float (&v)[kPack<T>]) {
  const auto some = __builtin_bit_cast(Some<T, kPack<T>>, pack);
  BOWLINE_UNROLL
  for (int i = 0; i < kPack<T>; ++i) {
    v[i] = read(&some.x[i]);
  }
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
    BOWLINE_KEEP_LOOP
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

template <class T>
struct Forward {
  Layer layer;
  const T* gates;
  const T* w;
  const T* bias;  // null: no bias
  const T* h0;
  const float* c0;
  Exchanged states[2];  // h before and after a step, in turn
  Exchanged faded;      // r * h
  float* z;             // from the first phase of a step to the second
  float* c;
  T* y;
  T* activations;
  T* recurrent;
};

// A lane processes kPack<T> consecutive k at once.
template <class T>
constexpr uint32_t kForwardStep = kPack<T> * kLanes;
constexpr uint32_t kForwardHeld = 2;

__device__ inline float logistic(float x) {
  float rest;
  return sigmoid(x, rest);
}

// The phase before the first step: the state h0, and the zeros behind rows.
template <class T>
__device__ void begin_forward(const Forward<T>& s) {
  for_each_item(s.layer, [&](uint32_t tile, uint32_t group, bool) {
    const uint32_t unit = tile * kUnits + threadIdx.x / kLanes;
    const uint32_t row = group * kRows + threadIdx.x % kLanes;
    if (threadIdx.x % kLanes >= kRows || row >= s.layer.batch) {
      return;
    }
    const uint64_t at = row * pitch_of(s.layer) + unit;
    if (unit < s.layer.units) {
      s.states[0].write(at, read(s.h0 + uint64_t{row} * s.layer.units + unit));
    } else {
      s.states[0].write(at, 0);
      s.states[1].write(at, 0);
      s.faded.write(at, 0);
    }
  });
}

// What a phase needs besides the sums, loaded before them.
struct Inputs {
  float gates[4];
  float c;
};

// Phase kPart of step i, for one unit and batch row.
template <Cell kCell, unsigned kPart, class T>
__device__ Inputs load_forward(const Forward<T>& s, uint64_t i, uint32_t row, uint32_t unit) {
  constexpr uint32_t kFirst = kPart == 0 ? 0 : 2;
  constexpr uint32_t kEnd = kCell == Cell::gru_before && kPart == 0 ? 2 : gates_of(kCell);
  const uint64_t rows = s.layer.at(i) * s.layer.batch + row;
  Inputs in = {};
  for (uint32_t g = kFirst; g < kEnd; ++g) {
    in.gates[g] = read(s.gates + (rows * gates_of(kCell) + g) * s.layer.units + unit);
  }
  if constexpr (kCell == Cell::lstm) {
    const float* const c = i == 0 ? s.c0 : s.c + s.layer.at(i - 1) * s.layer.state();
    in.c = c[uint64_t{row} * s.layer.units + unit];
  }
  return in;
}

template <Cell kCell, unsigned kPart, class T>
__device__ void finish_forward(const Forward<T>& s, uint64_t i, uint32_t row, uint32_t unit,
                               const Inputs& in, const float* sums) {
  const uint32_t units = s.layer.units;
  const uint64_t rows = s.layer.at(i) * s.layer.batch + row;
  const uint64_t at = rows * units + unit;
  const uint64_t state = row * pitch_of(s.layer) + unit;
  const auto keep = [&](uint32_t g, float x) {
    write(s.activations + (rows * gates_of(kCell) + g) * units + unit, x);
  };
  const float bias = s.bias == nullptr ? 0.0f : read(s.bias + unit);
  const Exchanged old_h = one_of(s.states, i);
  const auto leave = [&](float h) {
    one_of(s.states, i + 1).write(state, h);
    write(s.y + at, h);
  };
  if constexpr (kCell == Cell::lstm) {
    const float in_gate = logistic(in.gates[0] + sums[0]);
    const float forget = logistic(in.gates[1] + sums[1]);
    const float fresh = tanhf(in.gates[2] + sums[2]);
    const float out_gate = logistic(in.gates[3] + sums[3]);
    const float c = forget * in.c + in_gate * fresh;
    s.c[at] = c;
    leave(out_gate * tanhf(c));
    keep(0, in_gate);
    keep(1, forget);
    keep(2, fresh);
    keep(3, out_gate);
  } else if constexpr (kCell == Cell::gru) {
    const float r = logistic(in.gates[0] + sums[0]);
    const float z = logistic(in.gates[1] + sums[1]);
    const float made = sums[2] + bias;
    const float fresh = tanhf(in.gates[2] + r * made);
    leave((1 - z) * fresh + z * old_h.read(state));
    write(s.recurrent + at, made);
    keep(0, r);
    keep(1, z);
    keep(2, fresh);
  } else if constexpr (kPart == 0) {
    const float r = logistic(in.gates[0] + sums[0]);
    const float z = logistic(in.gates[1] + sums[1]);
    const float faded = r * old_h.read(state);
    s.z[state] = z;
    s.faded.write(state, faded);
    write(s.recurrent + at, faded);
    keep(0, r);
    keep(1, z);
  } else {
    const float z = s.z[state];
    const float fresh = tanhf(in.gates[2] + (sums[0] + bias));
    leave((1 - z) * fresh + z * old_h.read(state));
    keep(2, fresh);
  }
}

// Phase kPart of step i. A warp computes one unit of kRows batch rows; its lanes divide k.
template <Cell kCell, unsigned kPart, class T, class W, class F>
__device__ void forward_phase(const Forward<T>& s, uint64_t i, const W& weights, F&& load) {
  constexpr uint32_t kFirst = kPart == 0 ? 0 : 2;
  constexpr uint32_t kCount = kCell != Cell::gru_before ? gates_of(kCell) : kPart == 0 ? 2 : 1;
  constexpr uint32_t kSums = kCount == 3 ? 4 : kCount;  // a power of two
  const unsigned lane = threadIdx.x % kLanes;
  const uint32_t pitch = static_cast<uint32_t>(pitch_of(s.layer));
  const Exchanged h = kPart == 0 ? one_of(s.states, i) : s.faded;
  for_each_item(s.layer, [&](uint32_t tile, uint32_t group, bool is_first) {
    const uint32_t unit = tile * kUnits + threadIdx.x / kLanes;
    const uint32_t row0 = group * kRows;
    if (unit >= s.layer.units) {
      return;
    }
    const bool finishes = lane < kRows && row0 + lane < s.layer.batch;
    const Inputs in = finishes ? load_forward<kCell, kPart>(s, i, row0 + lane, unit) : Inputs{};
    float sums[kRows * kSums] = {};
    weights.template for_each<kFirst, kCount>(
        is_first, [&](uint32_t at, uint32_t gate) { return load(unit, at, gate); },
        [&](uint32_t at, const uint4(&packs)[kCount]) {
          const uint32_t k = at * kForwardStep<T> + lane * kPack<T>;
          if (k >= pitch) {
            return;
          }
          float x[kRows][kPack<T>];
          BOWLINE_UNROLL
          for (uint32_t r = 0; r < kRows; ++r) {
            const uint64_t row = min(row0 + r, s.layer.batch - 1);
            h.read_some(row * pitch + k, x[r]);
          }
          BOWLINE_UNROLL
          for (uint32_t g = 0; g < kCount; ++g) {
            float w[kPack<T>];
            unpack<T>(packs[g], w);
            BOWLINE_UNROLL
            for (uint32_t r = 0; r < kRows; ++r) {
              BOWLINE_UNROLL
              for (int e = 0; e < kPack<T>; ++e) {
                sums[r * kSums + g] += w[e] * x[r][e];
              }
            }
          }
        });
    // Lane r gets the sums of row r.
    const float sum = lane_sums<kLanes>(sums);
    float mine[kCount];
    BOWLINE_UNROLL
    for (uint32_t g = 0; g < kCount; ++g) {
      mine[g] = __shfl_sync(0xFFFFFFFF, sum, static_cast<int>(lane % kRows * kSums + g));
    }
    if (finishes) {
      finish_forward<kCell, kPart>(s, i, row0 + lane, unit, in, mine);
    }
  });
}

template <Cell kCell, class T>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(Forward<T> s, Phases phases) {
  const uint32_t units = s.layer.units;
  const bool is_aligned = units % kPack<T> == 0 && reinterpret_cast<uintptr_t>(s.w) % 16 == 0;
  const auto load = [&](uint32_t unit, uint32_t i, uint32_t gate) {
    const uint32_t k = i * kForwardStep<T> + threadIdx.x % kLanes * kPack<T>;
    return unit < units && k < units
               ? pack_from(s.w + (uint64_t{gate} * units + unit) * units + k, units - k, is_aligned)
               : uint4{};
  };
  const uint32_t first_unit = blockIdx.x % tiles_of(s.layer) * kUnits + threadIdx.x / kLanes;
  const Weights<gates_of(kCell), kForwardHeld> weights(
      phases.in_shared, phases.keeps_weights, (units + kForwardStep<T> - 1) / kForwardStep<T>,
      [&](uint32_t i, uint32_t gate) { return load(first_unit, i, gate); });
  GridBarrier barrier(phases.counters);
  for (uint64_t phase = phases.begin; phase < phases.end; ++phase) {
    if (phase > phases.begin) {
      barrier.wait();
    }
    if (phase == 0) {
      begin_forward(s);
    } else if (kCell != Cell::gru_before || phase % 2 == 1) {
      forward_phase<kCell, 0>(s, kCell == Cell::gru_before ? phase / 2 : phase - 1, weights, load);
    } else if constexpr (kCell == Cell::gru_before) {
      forward_phase<kCell, 1>(s, phase / 2 - 1, weights, load);
    }
  }
  barrier.end();
}

template <class T>
struct Backward {
  Layer layer;
  const T* activations;
  const T* w;
  const T* recurrent;
  const T* h0;
  const T* y;
  const float* c0;
  const float* c;
  const T* dy;
  const float* dc_in;  // null: zero
  // The gradients of the products of a step and of the step that follows it, in turn: of each
  // group, [gates * units, kRows].
  Exchanged turns[2];
  float* dc;  // passed from step to step
  float* dh;  // the same: the gradient of h that does not pass through w
  T* dgates;
  T* d_new;
  T* dh0;
};

// A pack holds the weights of kPack<T> units for one k. The packs of a k are in kPlanes teams of
// lanes, of kTeam lanes each.
template <class T>
constexpr uint32_t kPlanes = kUnits / kPack<T>;
template <class T>
constexpr uint32_t kTeam = kLanes / kPlanes<T>;
template <class T>
constexpr uint32_t kBackwardStep = kWarps * kTeam<T>;
constexpr uint32_t kBackwardHeld = 8;

// What a phase needs besides the sum, loaded before it.
struct BackInputs {
  float gates[4];
  float dy;
  float other[3];
};

// `left` is the number of remaining steps; 0 computes the gradient of the first state.
template <Cell kCell, unsigned kPart, class T>
__device__ BackInputs load_backward(const Backward<T>& s, uint64_t left, uint32_t row,
                                    uint32_t unit) {
  BackInputs in = {};
  if (left == 0) {
    return in;
  }
  const uint32_t units = s.layer.units;
  const uint64_t rows = s.layer.at(left - 1) * s.layer.batch + row;
  const uint64_t state = uint64_t{row} * units + unit;
  const uint64_t at = rows * units + unit;
  // Of the state before the step.
  const uint64_t before = left > 1 ? s.layer.at(left - 2) * s.layer.state() + state : state;
  for (uint32_t g = 0; g < gates_of(kCell); ++g) {
    if (kPart == 0 || g == 0) {
      in.gates[g] = read(s.activations + (rows * gates_of(kCell) + g) * units + unit);
    }
  }
  if constexpr (kPart == 0) {
    in.dy = read(s.dy + at);
  }
  if constexpr (kCell == Cell::lstm) {
    in.other[0] = s.c[at];
    in.other[1] = (left > 1 ? s.c : s.c0)[before];
    in.other[2] = s.dc_in == nullptr ? 0.0f : s.dc_in[at];
  } else {
    in.other[0] = read((left > 1 ? s.y : s.h0) + before);
    if constexpr (kCell == Cell::gru) {
      in.other[1] = read(s.recurrent + at);
    }
  }
  return in;
}

template <Cell kCell, unsigned kPart, class T>
__device__ void finish_backward(const Backward<T>& s, uint64_t left, uint32_t row, uint32_t unit,
                                const BackInputs& in, float sum) {
  const uint32_t units = s.layer.units;
  const bool is_last = left == s.layer.steps;  // no step follows
  const uint64_t state = uint64_t{row} * units + unit;
  if (left == 0) {
    if constexpr (kCell == Cell::lstm) {
      write(s.dh0 + state, sum);
      if (is_last) {
        s.dc[state] = 0;
      }
    } else {
      write(s.dh0 + state, is_last ? 0.0f : s.dh[state] + sum);
    }
    return;
  }
  const uint64_t rows = s.layer.at(left - 1) * s.layer.batch + row;
  const uint64_t made = row / kRows * group_size(s.layer) + row % kRows;
  const auto keep = [&](uint32_t g, float through, float d) {
    one_of(s.turns, left).write(made + (uint64_t{g} * units + unit) * kRows, through);
    write(s.dgates + (rows * gates_of(kCell) + g) * units + unit, d);
  };
  const float* const gate = in.gates;
  if constexpr (kCell == Cell::lstm) {
    const float squashed = tanhf(in.other[0]);
    const float dh = in.dy + sum;
    const float dc =
        (is_last ? 0.0f : s.dc[state]) + in.other[2] + dh * gate[3] * (1 - squashed * squashed);
    const float d[4] = {
        dc * gate[2] * (gate[0] * (1 - gate[0])), dc * in.other[1] * (gate[1] * (1 - gate[1])),
        dc * gate[0] * (1 - gate[2] * gate[2]), dh * squashed * (gate[3] * (1 - gate[3]))};
    for (uint32_t k = 0; k < 4; ++k) {
      keep(k, d[k], d[k]);
    }
    s.dc[state] = dc * gate[1];
  } else if constexpr (kPart == 0) {
    const float r = gate[0];
    const float z = gate[1];
    const float n = gate[2];
    const float dh = in.dy + (is_last ? 0.0f : s.dh[state] + sum);
    const float dz = dh * (in.other[0] - n) * (z * (1 - z));
    const float dn = dh * (1 - z) * (1 - n * n);
    const float d_new = kCell == Cell::gru ? dn * r : dn;
    if constexpr (kCell == Cell::gru) {
      const float dr = dn * in.other[1] * (r * (1 - r));
      keep(0, dr, dr);
    }
    keep(1, dz, dz);
    keep(2, d_new, dn);
    write(s.d_new + rows * units + unit, d_new);
    s.dh[state] = dh * z;
  } else {
    const float r = gate[0];
    const float dr = sum * in.other[0] * (r * (1 - r));
    keep(0, dr, dr);
    s.dh[state] += sum * r;
  }
}

// Rows of a group that are not in the batch exchange zeros.
template <class T>
__device__ void fill_backward(const Backward<T>& s, uint64_t left, uint32_t row, uint32_t unit) {
  const uint64_t made = row / kRows * group_size(s.layer) + row % kRows;
  for (uint32_t g = 0; g < s.layer.gates; ++g) {
    one_of(s.turns, left).write(made + (uint64_t{g} * s.layer.units + unit) * kRows, 0);
  }
}

// Phase kPart for `left` remaining steps. The warps of a block and the lanes of a team divide k;
// the warps take turns in finishing.
template <Cell kCell, unsigned kPart, class T, class W, class F>
__device__ void backward_phase(const Backward<T>& s, uint64_t left, const W& weights, F&& load,
                               Shared<float[2][kWarps][kLanes]>& parts) {
  constexpr int kSums = kRows * kPack<T>;
  static_assert(kSums == kTeam<T>);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp = threadIdx.x / kLanes;
  const uint32_t units = s.layer.units;
  // The rows [begin, end) of w.
  const uint32_t begin = kPart == 0 ? 0 : 2 * units;
  const uint32_t end = kPart == 0 && left == s.layer.steps       ? 0
                       : kPart == 0 && kCell == Cell::gru_before ? 2 * units
                                                                 : gates_of(kCell) * units;
  const Exchanged behind = one_of(s.turns, left + 1 + kPart);
  unsigned turn = 0;
  for_each_item(s.layer, [&](uint32_t tile, uint32_t group, bool is_first) {
    const uint32_t row = group * kRows + lane % kTeam<T> / kPack<T>;
    const uint32_t unit = tile * kUnits + lane / kTeam<T> * kPack<T> + lane % kPack<T>;
    const bool finishes = warp == turn % kWarps && unit < units;
    const bool is_row = row < s.layer.batch;
    const BackInputs in =
        finishes && is_row ? load_backward<kCell, kPart>(s, left, row, unit) : BackInputs{};
    float sums[kSums] = {};
    weights.template for_each<0, 1>(
        is_first, [&](uint32_t at, uint32_t) { return load(tile, at); },
        [&](uint32_t at, const uint4(&packs)[1]) {
          const uint32_t k = at * kBackwardStep<T> + warp * kTeam<T> + lane % kTeam<T>;
          if (k - begin >= end - begin) {  // k < begin wraps around
            return;
          }
          float x[kRows];
          behind.read_some(group * group_size(s.layer) + uint64_t{k} * kRows, x);
          float w[kPack<T>];
          unpack<T>(packs[0], w);
          BOWLINE_UNROLL
          for (uint32_t r = 0; r < kRows; ++r) {
            BOWLINE_UNROLL
            for (int e = 0; e < kPack<T>; ++e) {
              sums[r * kPack<T> + e] += x[r] * w[e];
            }
          }
        });
    parts[turn % 2][warp][lane] = lane_sums<kTeam<T>>(sums);
    __syncthreads();
    if (finishes) {
      float sum = 0;
      for (unsigned part = 0; part < kWarps; ++part) {
        sum += parts[turn % 2][part][lane];
      }
      if (is_row) {
        finish_backward<kCell, kPart>(s, left, row, unit, in, sum);
      } else if (kPart == 0) {
        fill_backward(s, left, row, unit);
      }
    }
    ++turn;
  });
}

template <Cell kCell, class T>
__global__ void __launch_bounds__(kThreads, 1) backward_kernel(Backward<T> s, Phases phases) {
  __shared__ Shared<float[2][kWarps][kLanes]> parts;
  const uint32_t units = s.layer.units;
  const uint32_t depth = gates_of(kCell) * units;
  const bool is_aligned = units % kPack<T> == 0 && reinterpret_cast<uintptr_t>(s.w) % 16 == 0;
  const auto load = [&](uint32_t tile, uint32_t i) {
    const unsigned lane = threadIdx.x % kLanes;
    const uint32_t k = i * kBackwardStep<T> + threadIdx.x / kLanes * kTeam<T> + lane % kTeam<T>;
    const uint32_t unit = tile * kUnits + lane / kTeam<T> * kPack<T>;
    return k < depth && unit < units
               ? pack_from(s.w + uint64_t{k} * units + unit, units - unit, is_aligned)
               : uint4{};
  };
  const uint32_t first_tile = blockIdx.x % tiles_of(s.layer);
  const Weights<1, kBackwardHeld> weights(
      phases.in_shared, phases.keeps_weights, (depth + kBackwardStep<T> - 1) / kBackwardStep<T>,
      [&](uint32_t i, uint32_t) { return load(first_tile, i); });
  GridBarrier barrier(phases.counters);
  for (uint64_t phase = phases.begin; phase < phases.end; ++phase) {
    if (phase > phases.begin) {
      barrier.wait();
    }
    constexpr uint64_t kPhases = kCell == Cell::gru_before ? 2 : 1;  // of a step
    const uint64_t left = s.layer.steps - phase / kPhases;
    if (phase % kPhases == 0) {
      backward_phase<kCell, 0>(s, left, weights, load, parts);
    } else if constexpr (kCell == Cell::gru_before) {
      backward_phase<kCell, 1>(s, left, weights, load, parts);
    }
  }
  barrier.end();
}

// The distance of the buffers in the workspace.
uint64_t floats(uint64_t n) { return buffer_bytes(n) / sizeof(float); }

// Forward: h before and after a step; without reset_after also r * h and z. Backward: the gradients
// of the products of two steps, and dh of a Gru.
uint64_t workspace(const NodeView& node) {
  const Layer layer = recurrent_layer_of(node.query);
  const uint64_t state = buffer_bytes(layer.batch * pitch_of(layer));
  const Op op = node.query.op;
  if (op == Op::Lstm || op == Op::Gru) {
    return state * (layer.reset_after ? 2 : 4);
  }
  return 2 * buffer_bytes(groups_of(layer) * group_size(layer)) + (layer.gates == 3 ? state : 0);
}

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

template <Cell kCell, class T>
void launch_forward(Launch& l, Forward<T>& s) {
  float* const space = l.workspace();
  const uint64_t state = floats(s.layer.batch * pitch_of(s.layer));
  s.gates = l.in_as<T>(0);
  s.w = l.in_as<T>(1);
  s.h0 = l.in_as<T>(2);
  s.states[0] = Exchanged(space);
  s.states[1] = Exchanged(space + state);
  if (kCell == Cell::gru_before) {
    s.faded = Exchanged(space + 2 * state);
    s.z = space + 3 * state;
  } else {
    s.faded = s.states[1];  // nothing but its zeros behind rows is written
  }
  s.y = l.out_as<T>(0);
  if (s.layer.steps > 0) {
    launch_phases(l, forward_kernel<kCell, T>, s,
                  1 + s.layer.steps * (kCell == Cell::gru_before ? 2 : 1),
                  blocks_for(s.layer.units, kForwardStep<T>), gates_of(kCell) * 16);
  }
}

template <Cell kCell, class T>
void launch_backward(Launch& l, Backward<T>& s) {
  const uint64_t turn = floats(groups_of(s.layer) * group_size(s.layer));
  s.turns[0] = Exchanged(l.workspace());
  s.turns[1] = Exchanged(l.workspace() + turn);
  s.dh = l.workspace() + 2 * turn;
  launch_phases(l, backward_kernel<kCell, T>, s,
                1 + s.layer.steps * (kCell == Cell::gru_before ? 2 : 1),
                blocks_for(uint64_t{gates_of(kCell)} * s.layer.units, kBackwardStep<T>), 16);
}

template <class T>
void lstm(Launch& l) {
  Forward<T> s{};
  s.layer = recurrent_layer_of(l.record());
  s.c0 = l.in(3);
  s.c = l.out(1);
  s.activations = l.out_as<T>(2);
  launch_forward<Cell::lstm>(l, s);
}

template <class T>
void gru(Launch& l) {
  Forward<T> s{};
  s.layer = recurrent_layer_of(l.record());
  s.bias = l.has_input(3) ? l.in_as<T>(3) : nullptr;
  s.activations = l.out_as<T>(1);
  s.recurrent = l.out_as<T>(2);
  s.layer.reset_after ? launch_forward<Cell::gru>(l, s) : launch_forward<Cell::gru_before>(l, s);
}

template <class T>
void lstm_grad(Launch& l) {
  Backward<T> s{};
  s.layer = recurrent_layer_of(l.record());
  s.activations = l.in_as<T>(0);
  s.w = l.in_as<T>(1);
  s.c0 = l.in(2);
  s.c = l.in(3);
  s.dy = l.in_as<T>(4);
  s.dc_in = l.has_input(5) ? l.in(5) : nullptr;
  s.dgates = l.out_as<T>(0);
  s.dh0 = l.out_as<T>(1);
  s.dc = l.out(2);
  launch_backward<Cell::lstm>(l, s);
}

template <class T>
void gru_grad(Launch& l) {
  Backward<T> s{};
  s.layer = recurrent_layer_of(l.record());
  s.activations = l.in_as<T>(0);
  s.recurrent = l.in_as<T>(1);
  s.w = l.in_as<T>(2);
  s.h0 = l.in_as<T>(3);
  s.y = l.in_as<T>(4);
  s.dy = l.in_as<T>(5);
  s.dgates = l.out_as<T>(0);
  s.d_new = l.out_as<T>(1);
  s.dh0 = l.out_as<T>(2);
  s.layer.reset_after ? launch_backward<Cell::gru>(l, s) : launch_backward<Cell::gru_before>(l, s);
}

// Offsets in a step have 64 bits; its rows and the rows of w have 32.
template <size_t kWeight>
const char* refusal(const NodeView& node) {
  return node.in(0)[1] > INT32_MAX || node.in(kWeight)[0] > INT32_MAX
             ? "A layer takes up to 2^31 sequences at once, and 2^31 rows of its weight."
             : nullptr;
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(lstm, .run = lstm<T>, .workspace = workspace, .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(gru, .run = gru<T>, .workspace = workspace, .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(lstm_grad, .run = lstm_grad<T>, .workspace = workspace,
                          .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(gru_grad, .run = gru_grad<T>, .workspace = workspace,
                          .refusal = refusal<2>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_kernels
