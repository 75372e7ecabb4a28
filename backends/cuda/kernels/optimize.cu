//! optimizers(f32, f16, bf16)
//! ops ZeroGrad AccumulateGrad ClipByGlobalNorm LossScale
//! ops(f16, bf16) AccumulateGrad
// Gradient storages and optimizers. A kernel over lists of storages is one launch with one block
// per chunk of a storage; the sum of squares for clipping has at most kPartials blocks. Per-step
// scalars are read from the step buffer in device memory.
#include <algorithm>

#include "core/optimizers.h"
#include "device/begin.cuh"
#include "device/formulas.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"
#include "device/update.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::formulas {

using S = float;
using D = float;
#define BOWLINE_FORMULA __device__
#define BOWLINE_UPDATE __device__
#include "generated/optimizer_formulas.inc"
#undef BOWLINE_FORMULA
#undef BOWLINE_UPDATE

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::formulas

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::optimize_kernels {
namespace {

using device::StepHead;

constexpr unsigned kThreads = kRowThreads;
// Maximum number of partial sums of squares. It is fixed, so that the order of the sum does not
// depend on the device. It is several times the number of blocks that a large GPU holds at once.
constexpr unsigned kPartials = 4096;

// Calls f(i, false) for each element of the chunk that this thread owns. If `four` is set, calls
// f(i, true) for elements i to i + 3 where possible.
template <class F>
__device__ void for_chunk(const Chunk& chunk, bool four, F&& f) {
  const uint64_t end = chunk.begin + chunk.length;
  if (!four) {
    for (uint64_t i = chunk.begin + threadIdx.x; i < end; i += kThreads) {
      f(i, false);
    }
    return;
  }
  for (uint64_t i = chunk.begin + 4 * threadIdx.x; i + 4 <= end; i += 4 * kThreads) {
    f(i, true);
  }
  const uint64_t rest = chunk.begin + chunk.length / 4 * 4;
  if (rest + threadIdx.x < end) {
    f(rest + threadIdx.x, false);
  }
}

__device__ bool fits_16(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

__global__ void zero_kernel(List grads, const StepHead* head) {
  begin_kernel();
  if (head->accumulate != 0) {
    return;
  }
  const Chunk chunk = grads.chunks[blockIdx.x];
  float* const g = grads.entries[chunk.entry].data;
  for_chunk(chunk, fits_16(g), [&](uint64_t i, bool four) {
    if (four) {
      store4(g + i, make_float4(0, 0, 0, 0));
    } else {
      g[i] = 0;
    }
  });
}

void zero_grad(Launch& l) {
  const List grads = l.in_list(0);
  l.launch("zero_grad", zero_kernel, grads.chunk_count, kThreads, grads, l.head());
}

__global__ void accumulate_kernel(float* grad, const float* contribution, uint64_t n, bool four,
                                  uint32_t is_first, const StepHead* head) {
  begin_kernel();
  const bool keep = is_first == 0 || head->accumulate != 0;
  for_elements(
      n, four, [&](uint64_t i) { grad[i] = keep ? grad[i] + contribution[i] : contribution[i]; },
      [&](uint64_t i) {
        float4 v = load4(contribution + i);
        if (keep) {
          const float4 g = load4(grad + i);
          v = make_float4(g.x + v.x, g.y + v.y, g.z + v.z, g.w + v.w);
        }
        store4(grad + i, v);
      });
}

void accumulate_grad(Launch& l) {
  const device::TableEntry& entry = l.entry(l.out_operand(0));
  float* const grad = l.out(0);
  l.launch("accumulate_grad", accumulate_kernel, element_blocks(entry.elements), kElementThreads,
           grad, l.in(1), entry.elements, aligned16(grad, l.in(1)), entry.first ? 1u : 0u,
           l.head());
}

// For a contribution in f16 or bf16: 16 bytes of it per thread.
constexpr unsigned kNarrowEach = 8;
template <class T>
__global__ void accumulate_narrow_kernel(float* grad, const T* contribution, uint64_t n, bool packs,
                                         uint32_t is_first, const StepHead* head) {
  begin_kernel();
  const bool keep = is_first == 0 || head->accumulate != 0;
  const auto add = [&]<int kMany>(uint64_t i) {
    float v[kMany];
    float before[kMany] = {};
    read_some(contribution + i, v);
    if (keep) {
      read_some(grad + i, before);
    }
    for (int k = 0; k < kMany; ++k) {
      v[k] = keep ? before[k] + v[k] : v[k];
    }
    write_some(grad + i, v);
  };
  for_elements<kNarrowEach>(
      n, packs, [&](uint64_t i) { add.template operator()<1>(i); },
      [&](uint64_t i) { add.template operator()<kNarrowEach>(i); });
}

template <class T>
void accumulate_narrow(Launch& l) {
  const device::TableEntry& entry = l.entry(l.out_operand(0));
  l.launch("accumulate_grad", accumulate_narrow_kernel<T>,
           element_blocks(entry.elements, kNarrowEach), kElementThreads, l.out(0),
           reinterpret_cast<const T*>(l.in(1)), entry.elements, aligned16(l.out(0), l.in(1)),
           entry.first ? 1u : 0u, l.head());
}

__global__ void loss_scale_kernel(float* y, const float* loss_scale) {
  begin_kernel();
  *y = *loss_scale;
}

void loss_scale(Launch& l) {
  l.launch("loss_scale", loss_scale_kernel, 1, 1, l.out(0), l.step(step::loss_scale::loss_scale));
}

// The squares of the elements of a chunk that this thread owns. All its loads of 16 bytes are
// issued before the first is used: each multiprocessor needs tens of kilobytes in flight.
__device__ float squares_of(const float* g, const Chunk& chunk) {
  constexpr unsigned kLoads = kChunk / (4 * kThreads);
  const uint64_t end = chunk.begin + chunk.length;
  float sum = 0;
  if (!fits_16(g)) {
    for (uint64_t i = chunk.begin + threadIdx.x; i < end; i += kThreads) {
      sum += g[i] * g[i];
    }
    return sum;
  }
  float4 v[kLoads];
  BOWLINE_UNROLL
  for (unsigned k = 0; k < kLoads; ++k) {
    const uint64_t i = chunk.begin + 4 * (k * kThreads + threadIdx.x);
    v[k] = i + 4 <= end ? load4(g + i) : float4{};
  }
  const uint64_t rest = chunk.begin + chunk.length / 4 * 4 + threadIdx.x;
  if (rest < end) {
    sum = g[rest] * g[rest];
  }
  BOWLINE_UNROLL
  for (unsigned k = 0; k < kLoads; ++k) {
    sum += v[k].x * v[k].x + v[k].y * v[k].y + (v[k].z * v[k].z + v[k].w * v[k].w);
  }
  return sum;
}

// Block b computes one partial sum: the squares of chunks b, b + kPartials, ...
__global__ void squares_kernel(List grads, float* partials) {
  begin_kernel();
  float sum = 0;
  for (uint32_t c = blockIdx.x; c < grads.chunk_count; c += kPartials) {
    const Chunk chunk = grads.chunks[c];
    sum += squares_of(grads.entries[chunk.entry].data, chunk);
  }
  sum = team_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
  }
}

struct ClipWords {
  const float* gradient_scale;
  float* grad_norm;
  uint32_t* non_finite;
};

// One block adds the partial sums.
// norm = gradient_scale sqrt(sum), scale = gradient_scale min(1, max_norm / norm).
__global__ void clip_kernel(const float* partials, unsigned count, const float* loss, float* scale,
                            ClipWords words, float max_norm) {
  begin_kernel();
  float v[kPartials / kThreads];
  BOWLINE_UNROLL
  for (unsigned k = 0; k < kPartials / kThreads; ++k) {
    const unsigned i = k * kThreads + threadIdx.x;
    v[k] = i < count ? partials[i] : 0.0f;
  }
  float sum = 0;
  for (const float part : v) {
    sum += part;
  }
  sum = team_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    const float norm = *words.gradient_scale * sqrtf(sum);
    const bool clips = max_norm > 0 && norm > max_norm;
    *scale = *words.gradient_scale * (clips ? max_norm / norm : 1);
    *words.grad_norm = norm;
    const float watched = loss == nullptr ? 0 : *loss;
    if (norm - norm != 0 || watched - watched != 0) {
      *words.non_finite = 1;
    }
  }
}

uint64_t clip_workspace(const NodeView&) { return kPartials * sizeof(float); }

void clip(Launch& l) {
  namespace word = step::clip_by_global_norm;
  const ClipWords words = {.gradient_scale = l.step(word::gradient_scale),
                           .grad_norm = l.step(word::grad_norm),
                           .non_finite = l.step(word::non_finite)};
  const List grads = l.in_list(0);
  const unsigned count = std::min(grads.chunk_count, kPartials);
  l.launch("squares", squares_kernel, count, kThreads, grads, l.workspace());
  l.launch("clip", clip_kernel, 1, kThreads, l.workspace(), count,
           l.has_input(1) ? l.in(1) : static_cast<const float*>(nullptr), l.out(0), words,
           l.attributes<ClipByGlobalNormAttributes>().max_norm());
}

// The inputs of a formula: the attributes, and the per-step scalars in device memory.
struct Reading {
  float numbers[kMostOptimizerNumbers];
  const uint32_t* words[kMostOptimizerWords];

  __device__ float number(size_t i) const { return numbers[i]; }
  __device__ bool flag(size_t i) const { return numbers[i] != 0; }
  __device__ float f32(size_t i) const { return *reinterpret_cast<const float*>(words[i]); }
  __device__ float u32(size_t i) const { return static_cast<float>(*words[i]); }
};

// The lists of an optimizer; a missing state has no entries.
struct UpdateLists {
  List values;  // f32 weights, or the masters of 16-bit weights
  List grads;
  List states[kMostOptimizerStates];
  List weights;
};

// One storage of each list; a missing state is null.
template <class Formula, class T>
struct Storages {
  float* w;
  const float* g;
  float* states[Formula::kStates];
  T* rounded;  // 16-bit weights

  __device__ bool fit_16() const {
    bool fit = fits_16(w) && fits_16(g) && fits_16(rounded);
    for (float* const state : states) {
      fit = fit && fits_16(state);
    }
    return fit;
  }
};

// Updates kWidth elements from i on. Returns true if the new weights are finite.
template <int kWidth, class Formula, class T>
__device__ bool update_some(const Formula& formula, float scale, const Storages<Formula, T>& at,
                            uint64_t i) {
  float w[kWidth], g[kWidth], states[Formula::kStates][kWidth] = {};
  read_some(at.w + i, w);
  read_some(at.g + i, g);
  for (size_t s = 0; s < Formula::kStates; ++s) {
    if (at.states[s] != nullptr) {
      read_some(at.states[s] + i, states[s]);
    }
  }
  bool finite = true;
  for (int k = 0; k < kWidth; ++k) {
    float of_element[kMostOptimizerStates];
    for (size_t s = 0; s < Formula::kStates; ++s) {
      of_element[s] = states[s][k];
    }
    formula.apply_to(w[k], g[k] * scale, of_element[0], of_element[1], of_element[2]);
    for (size_t s = 0; s < Formula::kStates; ++s) {
      states[s][k] = of_element[s];
    }
    finite = finite && w[k] - w[k] == 0;
  }
  write_some(at.w + i, w);
  if constexpr (!std::is_same_v<T, float>) {
    write_some(at.rounded + i, w);
  }
  for (size_t s = 0; s < Formula::kStates; ++s) {
    if (at.states[s] != nullptr) {
      write_some(at.states[s] + i, states[s]);
    }
  }
  return finite;
}

template <class Formula, class T>
__global__ void update_kernel(UpdateLists lists, const float* scale_at, const StepHead* head,
                              const uint32_t* non_finite, uint32_t* weights_non_finite,
                              Reading in) {
  begin_kernel();
  if (halted(head, non_finite)) {
    return;
  }
  const Chunk chunk = lists.values.chunks[blockIdx.x];
  Storages<Formula, T> at;
  at.w = lists.values.entries[chunk.entry].data;
  at.rounded = reinterpret_cast<T*>(lists.weights.entries[chunk.entry].data);
  at.g = lists.grads.entries[chunk.entry].data;
  for (size_t s = 0; s < Formula::kStates; ++s) {
    const List& list = lists.states[s];
    at.states[s] = list.entries == nullptr ? nullptr : list.entries[chunk.entry].data;
  }
  const Formula formula(in);
  const float scale = *scale_at;
  bool finite = true;
  for_chunk(chunk, at.fit_16(), [&](uint64_t i, bool four) {
    finite =
        (four ? update_some<4>(formula, scale, at, i) : update_some<1>(formula, scale, at, i)) &&
        finite;
  });
  report(finite, weights_non_finite);
}

template <class Formula, class T>
void launch_update(Launch& l, const char* name) {
  const UpdateOperands operands = update_operands(l.op(), l.attributes());
  const auto last = static_cast<uint32_t>(step_words(l.op()).size() - 1);
  UpdateLists lists = {
      l.in_list(updated_values(l.type(), l.inputs())), l.in_list(1), {}, l.in_list(0)};
  Reading in = {};
  std::ranges::copy(operands.numbers, in.numbers);
  for (uint32_t i = 0; i < last; ++i) {
    in.words[i] = l.step(StepWord<uint32_t>{i});
  }
  for (size_t s = 0; s < Formula::kStates; ++s) {
    lists.states[s] = operands.states[s] ? l.in_list(*operands.states[s]) : List();
  }
  l.launch(name, update_kernel<Formula, T>, lists.values.chunk_count, kThreads, lists,
           l.in(kUpdateScale), l.head(), l.step(StepWord<uint32_t>{last - 1}),
           l.step(StepWord<uint32_t>{last}), in);
}

template <class T>
void update(Launch& l) {
  switch (l.op()) {
#define BOWLINE_OPTIMIZER(Name, stem) \
  case Op::Name:                      \
    return launch_update<formulas::Name, T>(l, #stem);
#include "generated/optimizers.inc"
    default:
      return;
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(optimizers, .run = update<T>);
BOWLINE_KERNEL(zero_grad, .run = zero_grad);
BOWLINE_KERNEL(accumulate_grad, .run = accumulate_grad);
BOWLINE_KERNEL(clip_by_global_norm, .run = clip, .workspace = clip_workspace);
BOWLINE_KERNEL(loss_scale, .run = loss_scale);
BOWLINE_KERNEL(accumulate_grad_f16, .run = accumulate_narrow<__half>);
BOWLINE_KERNEL(accumulate_grad_bf16, .run = accumulate_narrow<__nv_bfloat16>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::optimize_kernels
