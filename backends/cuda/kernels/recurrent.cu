//! ops(f32, f16, bf16) Lstm LstmGrad Gru GruGrad
// Recurrent layers: one launch per step, or two for a Gru without reset_after. Values passed
// between steps are f32, in the workspace.
#include <algorithm>

#include "core/recurrent.h"
#include "device/math.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::recurrent_kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kLanes;
constexpr unsigned kRows = 4;  // batch rows that a warp, or a thread, processes at once

// The results of a step.
enum class Cell {
  lstm,
  gru,        // with reset_after the complete step; without it, backward dz and dn
  gru_gates,  // r and z, and r * h
  gru_new,    // n and h from them
  gru_reset   // backward: dr from d_new
};

using Layer = RecurrentLayer;

// The warps of a step.
__host__ __device__ uint64_t blocks_of(const Layer& layer) {
  return uint64_t{layer.units} * ((layer.batch + kRows - 1) / kRows);
}

// Operands of type T, c and next_c belong to the step.
template <class T>
struct Step {
  Layer layer;
  const T* gates;
  const T* w;
  const T* bias;       // null: no bias
  const float* h;      // the operand of the product with the weight
  float* next_h;       // the state after the step, or r * h
  const float* old_h;  // the state before the step
  float* z;            // from gru_gates to gru_new
  const float* c;
  float* next_c;
  T* y;
  T* activations;
  T* recurrent;
};

__device__ inline float logistic(float x) {
  float rest;
  return sigmoid(x, rest);
}

template <Cell kCell, class T>
__device__ void finish(const Step<T>& s, uint32_t row, uint32_t unit, const float* sums) {
  const uint32_t units = s.layer.units;
  const uint64_t at = uint64_t{row} * units + unit;
  const uint64_t gate = uint64_t{row} * units * (kCell == Cell::lstm ? 4 : 3) + unit;
  const auto input = [&](uint32_t g) { return read(s.gates + gate + g * units); };
  const auto keep = [&](uint32_t g, float x) { write(s.activations + gate + g * units, x); };
  const float bias = s.bias == nullptr ? 0.0f : read(s.bias + unit);
  float h;
  if constexpr (kCell == Cell::lstm) {
    const float i = logistic(input(0) + sums[0]);
    const float f = logistic(input(1) + sums[1]);
    const float g = tanhf(input(2) + sums[2]);
    const float o = logistic(input(3) + sums[3]);
    const float c = f * s.c[at] + i * g;
    h = o * tanhf(c);
    s.next_c[at] = c;
    keep(0, i);
    keep(1, f);
    keep(2, g);
    keep(3, o);
  } else if constexpr (kCell == Cell::gru_gates) {
    const float r = logistic(input(0) + sums[0]);
    const float z = logistic(input(1) + sums[1]);
    h = r * s.h[at];
    s.z[at] = z;
    write(s.recurrent + at, h);
    keep(0, r);
    keep(1, z);
  } else if constexpr (kCell == Cell::gru) {
    const float r = logistic(input(0) + sums[0]);
    const float z = logistic(input(1) + sums[1]);
    const float made = sums[2] + bias;
    const float fresh = tanhf(input(2) + r * made);
    h = (1 - z) * fresh + z * s.old_h[at];
    write(s.recurrent + at, made);
    keep(0, r);
    keep(1, z);
    keep(2, fresh);
  } else {
    const float z = s.z[at];
    const float fresh = tanhf(input(2) + (sums[0] + bias));
    h = (1 - z) * fresh + z * s.old_h[at];
    keep(2, fresh);
  }
  s.next_h[at] = h;
  if constexpr (kCell != Cell::gru_gates) {
    write(s.y + at, h);
  }
}

// A warp computes one unit of kRows batch rows; each lane adds every 32nd term.
template <Cell kCell, class T>
__global__ void __launch_bounds__(kThreads) step_kernel(Step<T> s) {
  constexpr uint32_t kFirst = kCell == Cell::gru_new ? 2 : 0;
  constexpr uint32_t kGates = kCell == Cell::lstm        ? 4
                              : kCell == Cell::gru       ? 3
                              : kCell == Cell::gru_gates ? 2
                                                         : 1;
  const uint64_t warp = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (warp >= blocks_of(s.layer)) {
    return;
  }
  const unsigned lane = threadIdx.x % kLanes;
  const uint32_t units = s.layer.units;
  const auto unit = static_cast<uint32_t>(warp % units);
  const uint32_t row0 = static_cast<uint32_t>(warp / units) * kRows;
  float sums[kRows][kGates] = {};
  for (uint32_t k = lane; k < units; k += kLanes) {
    float x[kRows];
    for (uint32_t r = 0; r < kRows; ++r) {
      x[r] = row0 + r < s.layer.batch ? s.h[uint64_t{row0 + r} * units + k] : 0.0f;
    }
    for (uint32_t g = 0; g < kGates; ++g) {
      const float w = read(s.w + (uint64_t{kFirst + g} * units + unit) * units + k);
      for (uint32_t r = 0; r < kRows; ++r) {
        sums[r][g] += w * x[r];
      }
    }
  }
  // Lane r gets the sums of row r.
  float mine[kGates] = {};
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t g = 0; g < kGates; ++g) {
      const float sum = team_sum<kLanes>(sums[r][g]);
      mine[g] = lane == r || r == 0 ? sum : mine[g];
    }
  }
  if (lane < kRows && row0 + lane < s.layer.batch) {
    finish<kCell>(s, row0 + lane, unit, mine);
  }
}

// Operands of type T, c and old_c belong to the step.
template <class T>
struct BackStep {
  Layer layer;
  const T* activations;
  const T* w;
  // [batch, gates * units]: the gradient of the products of the following step; for gru_reset, of
  // this step.
  const float* behind;
  float* made;  // the same for this step
  const float* old_c;
  const float* c;
  const float* dc_in;  // null: zero
  float* dc;           // passed from step to step
  const T* recurrent;
  const T* old_h;
  const T* dy;
  T* d_new;
  float* dh;  // passed from step to step: the gradient of h that does not pass through w
  T* dgates;
  T* dh0;
  uint32_t from;   // rows [from, from + depth) of w, and of `behind`
  uint32_t depth;  // 0: there is no following step
  bool ends;       // writes only dh0
};

template <Cell kCell, class T>
__device__ void finish_back(const BackStep<T>& s, uint32_t row, uint32_t unit, float sum) {
  const uint32_t units = s.layer.units;
  const uint64_t at = uint64_t{row} * units + unit;
  const uint64_t gate = uint64_t{row} * units * (kCell == Cell::lstm ? 4 : 3) + unit;
  const auto gate_of = [&](uint32_t g) { return read(s.activations + gate + g * units); };
  const auto keep = [&](uint32_t g, float through, float d) {
    s.made[gate + g * units] = through;
    write(s.dgates + gate + g * units, d);
  };
  if constexpr (kCell == Cell::lstm) {
    if (s.ends) {
      write(s.dh0 + at, sum);
      if (s.depth == 0) {
        s.dc[at] = 0;
      }
      return;
    }
    const float i = gate_of(0);
    const float f = gate_of(1);
    const float g = gate_of(2);
    const float o = gate_of(3);
    const float squashed = tanhf(s.c[at]);
    const float dh = read(s.dy + at) + sum;
    float dc = s.depth == 0 ? 0.0f : s.dc[at];
    if (s.dc_in != nullptr) {
      dc += s.dc_in[at];
    }
    dc += dh * o * (1 - squashed * squashed);
    const float d[4] = {dc * g * (i * (1 - i)), dc * s.old_c[at] * (f * (1 - f)),
                        dc * i * (1 - g * g), dh * squashed * (o * (1 - o))};
    for (uint32_t k = 0; k < 4; ++k) {
      keep(k, d[k], d[k]);
    }
    s.dc[at] = dc * f;
  } else if constexpr (kCell == Cell::gru) {
    const float through = s.depth == 0 ? 0.0f : s.dh[at] + sum;
    if (s.ends) {
      write(s.dh0 + at, through);
      return;
    }
    const float r = gate_of(0);
    const float z = gate_of(1);
    const float n = gate_of(2);
    const float dh = read(s.dy + at) + through;
    const float dz = dh * (read(s.old_h + at) - n) * (z * (1 - z));
    const float dn = dh * (1 - z) * (1 - n * n);
    const float d_new = s.layer.reset_after ? dn * r : dn;
    if (s.layer.reset_after) {
      const float dr = dn * read(s.recurrent + at) * (r * (1 - r));
      keep(0, dr, dr);
    }
    keep(1, dz, dz);
    keep(2, d_new, dn);
    write(s.d_new + at, d_new);
    s.dh[at] = dh * z;
  } else {
    const float r = gate_of(0);
    const float dr = sum * read(s.old_h + at) * (r * (1 - r));
    keep(0, dr, dr);
    s.dh[at] += sum * r;
  }
}

// A block computes 32 units of kRows batch rows; a warp adds every 8th term of their sums.
template <Cell kCell, class T>
__global__ void __launch_bounds__(kThreads) back_kernel(BackStep<T> s) {
  __shared__ Shared<float[kWarps][kRows][kLanes]> parts;
  constexpr uint32_t kGates = kCell == Cell::lstm ? 4 : 3;
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp = threadIdx.x / kLanes;
  const uint32_t units = s.layer.units;
  const uint32_t unit = blockIdx.x * kLanes + lane;
  const uint32_t row0 = blockIdx.y * kRows;
  float sums[kRows] = {};
  for (uint32_t k = warp; k < s.depth && unit < units; k += kWarps) {
    const float w = read(s.w + uint64_t{s.from + k} * units + unit);
    for (uint32_t r = 0; r < kRows; ++r) {
      if (row0 + r < s.layer.batch) {
        sums[r] += s.behind[uint64_t{row0 + r} * kGates * units + s.from + k] * w;
      }
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    parts[warp][r][lane] = sums[r];
  }
  __syncthreads();
  // Warp r finishes row r.
  if (warp >= kRows || row0 + warp >= s.layer.batch || unit >= units) {
    return;
  }
  float sum = 0;
  for (unsigned part = 0; part < kWarps; ++part) {
    sum += parts[part][warp][lane];
  }
  finish_back<kCell>(s, row0 + warp, unit, sum);
}

// The distance of the buffers in the workspace.
uint64_t floats(uint64_t n) { return buffer_bytes(n) / sizeof(float); }

template <Cell kCell, class T>
void launch_step(Launch& l, const Step<T>& s) {
  l.launch("recurrent step", step_kernel<kCell, T>, blocks_for(blocks_of(s.layer), kWarps),
           kThreads, s);
}

template <Cell kCell, class T>
void launch_back(Launch& l, const BackStep<T>& s) {
  l.launch("recurrent step, gradient", back_kernel<kCell, T>,
           dim3(blocks_for(s.layer.units, kLanes), blocks_for(s.layer.batch, kRows)), kThreads, s);
}

uint64_t workspace(const NodeView& node) { return recurrent_workspace(node.query); }

template <class T>
void lstm(Launch& l) {
  const Layer layer = recurrent_layer_of(l.record());
  const uint64_t state = layer.state();
  float* const states[2] = {l.workspace(), l.workspace() + floats(state)};
  convert(l, l.in(2), l.type(), states[0], DType::f32, state);
  for (uint64_t i = 0; i < layer.steps; ++i) {
    const uint64_t t = layer.at(i);
    Step<T> s{};
    s.layer = layer;
    s.gates = l.in_as<T>(0) + t * 4 * state;
    s.w = l.in_as<T>(1);
    s.h = states[i % 2];
    s.next_h = states[(i + 1) % 2];
    s.c = i == 0 ? l.in(3) : l.out(1) + layer.at(i - 1) * state;
    s.next_c = l.out(1) + t * state;
    s.y = l.out_as<T>(0) + t * state;
    s.activations = l.out_as<T>(2) + t * 4 * state;
    launch_step<Cell::lstm>(l, s);
  }
}

template <class T>
void gru(Launch& l) {
  const Layer layer = recurrent_layer_of(l.record());
  const uint64_t state = layer.state();
  float* const states[2] = {l.workspace(), l.workspace() + floats(state)};
  float* const faded = states[1] + floats(state);
  convert(l, l.in(2), l.type(), states[0], DType::f32, state);
  for (uint64_t i = 0; i < layer.steps; ++i) {
    const uint64_t t = layer.at(i);
    Step<T> s{};
    s.layer = layer;
    s.gates = l.in_as<T>(0) + t * 3 * state;
    s.w = l.in_as<T>(1);
    s.bias = l.has_input(3) ? l.in_as<T>(3) : nullptr;
    s.old_h = states[i % 2];
    s.h = s.old_h;
    s.next_h = states[(i + 1) % 2];
    s.z = faded + floats(state);
    s.y = l.out_as<T>(0) + t * state;
    s.activations = l.out_as<T>(1) + t * 3 * state;
    s.recurrent = l.out_as<T>(2) + t * state;
    if (layer.reset_after) {
      launch_step<Cell::gru>(l, s);
      continue;
    }
    Step<T> gates = s;
    gates.next_h = faded;
    launch_step<Cell::gru_gates>(l, gates);
    s.h = faded;
    launch_step<Cell::gru_new>(l, s);
  }
}

template <class T>
void lstm_grad(Launch& l) {
  const Layer layer = recurrent_layer_of(l.record());
  const uint64_t state = layer.state();
  float* const turns[2] = {l.workspace(), l.workspace() + floats(4 * state)};
  // `left` is the number of remaining steps; 0 computes the gradient of the first state.
  for (uint64_t left = layer.steps + 1; left-- > 0;) {
    const uint64_t t = left == 0 ? 0 : layer.at(left - 1);
    BackStep<T> s{};
    s.layer = layer;
    s.activations = l.in_as<T>(0) + t * 4 * state;
    s.w = l.in_as<T>(1);
    s.behind = turns[(left + 1) % 2];
    s.made = turns[left % 2];
    s.old_c = left > 1 ? l.in(3) + layer.at(left - 2) * state : l.in(2);
    s.c = l.in(3) + t * state;
    s.dy = l.in_as<T>(4) + t * state;
    s.dc_in = l.has_input(5) ? l.in(5) + t * state : nullptr;
    s.dc = l.out(2);
    s.dgates = l.out_as<T>(0) + t * 4 * state;
    s.dh0 = l.out_as<T>(1);
    s.depth = left == layer.steps ? 0 : 4 * layer.units;
    s.ends = left == 0;
    launch_back<Cell::lstm>(l, s);
  }
}

template <class T>
void gru_grad(Launch& l) {
  const Layer layer = recurrent_layer_of(l.record());
  const uint64_t state = layer.state();
  float* const turns[2] = {l.workspace(), l.workspace() + floats(3 * state)};
  for (uint64_t left = layer.steps + 1; left-- > 0;) {
    const uint64_t t = left == 0 ? 0 : layer.at(left - 1);
    BackStep<T> s{};
    s.layer = layer;
    s.activations = l.in_as<T>(0) + t * 3 * state;
    s.recurrent = l.in_as<T>(1) + t * state;
    s.w = l.in_as<T>(2);
    s.behind = turns[(left + 1) % 2];
    s.made = turns[left % 2];
    s.old_h = left > 1 ? l.in_as<T>(4) + layer.at(left - 2) * state : l.in_as<T>(3);
    s.dy = l.in_as<T>(5) + t * state;
    s.dgates = l.out_as<T>(0) + t * 3 * state;
    s.d_new = l.out_as<T>(1) + t * state;
    s.dh = turns[1] + floats(3 * state);
    s.dh0 = l.out_as<T>(2);
    s.depth = left == layer.steps ? 0 : (s.layer.reset_after ? 3 : 2) * layer.units;
    s.ends = left == 0;
    launch_back<Cell::gru>(l, s);
    if (!s.layer.reset_after && left > 0) {
      s.behind = s.made;
      s.from = 2 * layer.units;
      s.depth = layer.units;
      launch_back<Cell::gru_reset>(l, s);
    }
  }
}

// Offsets in a step have 64 bits; its rows and blocks have 32.
template <size_t kWeight>
const char* refusal(const NodeView& node) {
  constexpr int64_t kMostRows = 65535 * kRows;
  return node.in(0)[1] > kMostRows || node.in(kWeight)[0] > INT32_MAX
             ? "A layer takes up to 262,140 sequences at once, and 2^31 rows of its weight."
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
