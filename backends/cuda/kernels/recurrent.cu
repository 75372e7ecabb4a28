//! ops(f32, f16, bf16) Lstm Gru
// All steps of a recurrent layer (device/recurrent.cuh).
#include "device/begin.cuh"
#include "device/math.cuh"
#include "device/recurrent.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_kernels {
namespace {

using namespace recurrent;

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
  begin_kernel();
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

// h before and after a step; without reset_after also r * h and z.
uint64_t workspace(const NodeView& node) {
  const Layer layer = recurrent_layer_of(node.query);
  return buffer_bytes(layer.batch * pitch_of(layer)) * (layer.reset_after ? 2 : 4);
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

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(lstm, .run = lstm<T>, .workspace = workspace, .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(gru, .run = gru<T>, .workspace = workspace, .refusal = refusal<1>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_kernels
