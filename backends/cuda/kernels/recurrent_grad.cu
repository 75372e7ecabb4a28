//! ops(f32, f16, bf16) LstmGrad GruGrad
// The gradients of recurrent layers, from the last step to the first (device/recurrent.cuh).
#include "device/begin.cuh"
#include "device/recurrent.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_grad_kernels {
namespace {

using namespace recurrent;

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
  begin_kernel();
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

// The gradients of the products of two steps, and dh of a Gru.
uint64_t workspace(const NodeView& node) {
  const Layer layer = recurrent_layer_of(node.query);
  return 2 * buffer_bytes(groups_of(layer) * group_size(layer)) +
         (layer.gates == 3 ? buffer_bytes(layer.state()) : 0);
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

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(lstm_grad, .run = lstm_grad<T>, .workspace = workspace,
                          .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(gru_grad, .run = gru_grad<T>, .workspace = workspace,
                          .refusal = refusal<2>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_grad_kernels
