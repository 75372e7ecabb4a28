//! ops ZeroGrad AccumulateGrad ClipByGlobalNorm Sgd AdamW Adagrad RmsProp Lion Adafactor LossScale
//! ops(f16, bf16) AccumulateGrad RoundWeights
// What runs once per step over lists of storages: one launch for all of them, with a block per
// chunk. Rates and counters are read from the step words in device memory.
#include <algorithm>

#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::optimize_kernels {
namespace {

using device::StepHead;

constexpr unsigned kThreads = kRowThreads;
constexpr unsigned kPartials =
    256;  // most sums of squares; fixed, so that the order does not depend on the device

// Calls f(entry, i, four) for this thread's elements of a chunk; `four` says that four elements
// from i on are meant.
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

__device__ bool halted(const StepHead* head, const uint32_t* non_finite) {
  return head->error != 0 || *non_finite != 0;
}

// A weight that is not finite is reported by every thread that wrote one.
__device__ void report(bool finite, uint32_t* weights_non_finite) {
  if (!finite) {
    *weights_non_finite = 1;
  }
}

__global__ void zero_kernel(List grads, const StepHead* head) {
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

// A contribution in 16 bits.
template <class T>
__global__ void accumulate_narrow_kernel(float* grad, const T* contribution, uint64_t n,
                                         uint32_t is_first, const StepHead* head) {
  const bool keep = is_first == 0 || head->accumulate != 0;
  for_elements(
      n, false,
      [&](uint64_t i) {
        const float v = read(contribution + i);
        grad[i] = keep ? grad[i] + v : v;
      },
      [](uint64_t) {});
}

template <class T>
void accumulate_narrow(Launch& l) {
  const device::TableEntry& entry = l.entry(l.out_operand(0));
  l.launch("accumulate_grad", accumulate_narrow_kernel<T>, element_blocks(entry.elements),
           kElementThreads, l.out(0), reinterpret_cast<const T*>(l.in(1)), entry.elements,
           entry.first ? 1u : 0u, l.head());
}

__global__ void loss_scale_kernel(float* y, const float* loss_scale) { *y = *loss_scale; }

void loss_scale(Launch& l) {
  l.launch("loss_scale", loss_scale_kernel, 1, 1, l.out(0), l.step(step::loss_scale::loss_scale));
}

template <class T>
__global__ void round_kernel(List masters, List weights) {
  const Chunk chunk = masters.chunks[blockIdx.x];
  const float* const from = masters.entries[chunk.entry].data;
  T* const to = reinterpret_cast<T*>(weights.entries[chunk.entry].data);
  for_chunk(chunk, false, [&](uint64_t i, bool) { write(to + i, from[i]); });
}

template <class T>
void round_weights(Launch& l) {
  const List masters = l.in_list(0);
  l.launch("round_weights", round_kernel<T>, masters.chunk_count, kThreads, masters, l.in_list(1));
}

// Block b adds the squares of chunks b, b + kPartials, ...
__global__ void squares_kernel(List grads, float* partials) {
  float sum = 0;
  for (uint32_t c = blockIdx.x; c < grads.chunk_count; c += kPartials) {
    const Chunk chunk = grads.chunks[c];
    const float* const g = grads.entries[chunk.entry].data;
    for_chunk(chunk, fits_16(g), [&](uint64_t i, bool four) {
      if (four) {
        const float4 v = load4(g + i);
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
      } else {
        sum += g[i] * g[i];
      }
    });
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

// norm = gradient_scale sqrt(sum), scale = gradient_scale min(1, max_norm / norm).
__global__ void clip_kernel(const float* partials, unsigned count, const float* loss, float* scale,
                            ClipWords words, float max_norm) {
  const float sum = team_sum<kThreads>(threadIdx.x < count ? partials[threadIdx.x] : 0.0f);
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
  static_assert(kPartials == kThreads);
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

struct SgdWords {
  const float* learning_rate;
  const uint32_t* first_update;
  const uint32_t* non_finite;
  uint32_t* weights_non_finite;
};

struct SgdNumbers {
  float momentum;
  float weight_decay;
  float rate_factor;
  bool nesterov;
  bool has_momentum;
};

__global__ void sgd_kernel(List weights, List grads, List momenta, const float* scale_at,
                           const StepHead* head, SgdWords words, SgdNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const Chunk chunk = weights.chunks[blockIdx.x];
  float* const w = weights.entries[chunk.entry].data;
  const float* const g = grads.entries[chunk.entry].data;
  float* const b = a.has_momentum ? momenta.entries[chunk.entry].data : nullptr;
  const float scale = *scale_at;
  const float rate = *words.learning_rate * a.rate_factor;
  bool finite = true;
  const bool first = *words.first_update != 0;
  for_chunk(chunk, false, [&](uint64_t i, bool) {
    float d = g[i] * scale + a.weight_decay * w[i];
    if (a.has_momentum) {
      const float kept = first ? d : a.momentum * b[i] + d;
      b[i] = kept;
      d = a.nesterov ? d + a.momentum * kept : kept;
    }
    w[i] -= rate * d;
    finite = finite && w[i] - w[i] == 0;
  });
  report(finite, words.weights_non_finite);
}

void sgd(Launch& l) {
  const auto& t = l.attributes<SgdAttributes>();
  const List weights = l.in_list(0);
  const bool has_momentum = l.has_input(3);
  const SgdWords words = {.learning_rate = l.step(step::sgd::learning_rate),
                          .first_update = l.step(step::sgd::first_update),
                          .non_finite = l.step(step::sgd::non_finite),
                          .weights_non_finite = l.step(step::sgd::weights_non_finite)};
  l.launch("sgd", sgd_kernel, weights.chunk_count, kThreads, weights, l.in_list(1),
           has_momentum ? l.in_list(3) : List(), l.in(2), l.head(), words,
           SgdNumbers{t.momentum(), t.weight_decay(), t.learning_rate_factor(), t.nesterov(),
                      has_momentum});
}

struct AdamWWords {
  const float* learning_rate;
  const float* bias_correction1;
  const float* bias_correction2;
  const uint32_t* non_finite;
  uint32_t* weights_non_finite;
};

struct AdamWNumbers {
  float beta1;
  float beta2;
  float eps;
  float weight_decay;
  float rate_factor;
};

// What is the same for all elements of a step.
struct AdamWStep {
  float scale;
  float rate;
  float keep;
  float correction1;
  float correction2;

  // Returns whether the new w is finite.
  __device__ bool apply(const AdamWNumbers& a, float& w, float g, float& m, float& v) const {
    g *= scale;
    m = a.beta1 * m + (1 - a.beta1) * g;
    v = a.beta2 * v + (1 - a.beta2) * g * g;
    w = w * keep - rate * (m / correction1) / (sqrtf(v / correction2) + a.eps);
    return w - w == 0;
  }
};

__global__ void adam_w_kernel(List weights, List grads, List means, List squares,
                              const float* scale_at, const StepHead* head, AdamWWords words,
                              AdamWNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const Chunk chunk = weights.chunks[blockIdx.x];
  float* const w = weights.entries[chunk.entry].data;
  const float* const g = grads.entries[chunk.entry].data;
  float* const m = means.entries[chunk.entry].data;
  float* const v = squares.entries[chunk.entry].data;
  const float rate = *words.learning_rate * a.rate_factor;
  bool finite = true;
  const AdamWStep s = {*scale_at, rate, 1 - rate * a.weight_decay, *words.bias_correction1,
                       *words.bias_correction2};
  for_chunk(chunk, fits_16(w) && fits_16(g) && fits_16(m) && fits_16(v),
            [&](uint64_t i, bool four) {
              if (!four) {
                finite = s.apply(a, w[i], g[i], m[i], v[i]) && finite;
                return;
              }
              float4 w4 = load4(w + i);
              const float4 g4 = load4(g + i);
              float4 m4 = load4(m + i);
              float4 v4 = load4(v + i);
              finite = s.apply(a, w4.x, g4.x, m4.x, v4.x) && finite;
              finite = s.apply(a, w4.y, g4.y, m4.y, v4.y) && finite;
              finite = s.apply(a, w4.z, g4.z, m4.z, v4.z) && finite;
              finite = s.apply(a, w4.w, g4.w, m4.w, v4.w) && finite;
              store4(w + i, w4);
              store4(m + i, m4);
              store4(v + i, v4);
            });
  report(finite, words.weights_non_finite);
}

void adam_w(Launch& l) {
  const auto& t = l.attributes<AdamWAttributes>();
  const List weights = l.in_list(0);
  const AdamWWords words = {.learning_rate = l.step(step::adam_w::learning_rate),
                            .bias_correction1 = l.step(step::adam_w::bias_correction1),
                            .bias_correction2 = l.step(step::adam_w::bias_correction2),
                            .non_finite = l.step(step::adam_w::non_finite),
                            .weights_non_finite = l.step(step::adam_w::weights_non_finite)};
  l.launch("adam_w", adam_w_kernel, weights.chunk_count, kThreads, weights, l.in_list(1),
           l.in_list(2), l.in_list(3), l.in(4), l.head(), words,
           AdamWNumbers{t.beta1(), t.beta2(), t.eps(), t.weight_decay(), t.learning_rate_factor()});
}

// What the updates below read and write besides their lists.
struct UpdateWords {
  const float* learning_rate;
  const uint32_t* update;
  const uint32_t* non_finite;
  uint32_t* weights_non_finite;
};

struct AdagradNumbers {
  float rate_decay;
  float eps;
  float weight_decay;
  float rate_factor;
};

__global__ void adagrad_kernel(List weights, List grads, List sums, const float* scale_at,
                               const StepHead* head, UpdateWords words, AdagradNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const Chunk chunk = weights.chunks[blockIdx.x];
  float* const w = weights.entries[chunk.entry].data;
  const float* const g = grads.entries[chunk.entry].data;
  float* const s = sums.entries[chunk.entry].data;
  const float scale = *scale_at;
  const float before = static_cast<float>(*words.update - 1);
  const float rate = *words.learning_rate * a.rate_factor / (1 + before * a.rate_decay);
  bool finite = true;
  for_chunk(chunk, false, [&](uint64_t i, bool) {
    const float d = g[i] * scale + a.weight_decay * w[i];
    s[i] += d * d;
    w[i] -= rate * (d / (sqrtf(s[i]) + a.eps));
    finite = finite && w[i] - w[i] == 0;
  });
  report(finite, words.weights_non_finite);
}

void adagrad(Launch& l) {
  namespace word = step::adagrad;
  const auto& t = l.attributes<AdagradAttributes>();
  const List weights = l.in_list(0);
  const UpdateWords words = {.learning_rate = l.step(word::learning_rate),
                             .update = l.step(word::update),
                             .non_finite = l.step(word::non_finite),
                             .weights_non_finite = l.step(word::weights_non_finite)};
  l.launch(
      "adagrad", adagrad_kernel, weights.chunk_count, kThreads, weights, l.in_list(1), l.in_list(2),
      l.in(3), l.head(), words,
      AdagradNumbers{t.learning_rate_decay(), t.eps(), t.weight_decay(), t.learning_rate_factor()});
}

struct RmsPropNumbers {
  float alpha;
  float momentum;
  float eps;
  float weight_decay;
  float rate_factor;
  bool centered;
  bool has_momentum;
};

__global__ void rms_prop_kernel(List weights, List grads, List squares, List means, List momenta,
                                const float* scale_at, const StepHead* head, UpdateWords words,
                                RmsPropNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const Chunk chunk = weights.chunks[blockIdx.x];
  float* const w = weights.entries[chunk.entry].data;
  const float* const g = grads.entries[chunk.entry].data;
  float* const v = squares.entries[chunk.entry].data;
  float* const m = a.centered ? means.entries[chunk.entry].data : nullptr;
  float* const b = a.has_momentum ? momenta.entries[chunk.entry].data : nullptr;
  const float scale = *scale_at;
  const float rate = *words.learning_rate * a.rate_factor;
  bool finite = true;
  for_chunk(chunk, false, [&](uint64_t i, bool) {
    const float d = g[i] * scale + a.weight_decay * w[i];
    v[i] = a.alpha * v[i] + (1 - a.alpha) * d * d;
    float variance = v[i];
    if (a.centered) {
      m[i] = a.alpha * m[i] + (1 - a.alpha) * d;
      variance -= m[i] * m[i];
      variance = variance < 0 ? 0 : variance;
    }
    float step = d / (sqrtf(variance) + a.eps);
    if (a.has_momentum) {
      step += a.momentum * b[i];
      b[i] = step;
    }
    w[i] -= rate * step;
    finite = finite && w[i] - w[i] == 0;
  });
  report(finite, words.weights_non_finite);
}

void rms_prop(Launch& l) {
  namespace word = step::rms_prop;
  const auto& t = l.attributes<RmsPropAttributes>();
  const List weights = l.in_list(0);
  const bool has_momentum = t.momentum() != 0;
  const UpdateWords words = {.learning_rate = l.step(word::learning_rate),
                             .update = nullptr,
                             .non_finite = l.step(word::non_finite),
                             .weights_non_finite = l.step(word::weights_non_finite)};
  l.launch("rms_prop", rms_prop_kernel, weights.chunk_count, kThreads, weights, l.in_list(1),
           l.in_list(3), t.centered() ? l.in_list(4) : List(),
           has_momentum ? l.in_list(t.centered() ? 5 : 4) : List(), l.in(2), l.head(), words,
           RmsPropNumbers{t.alpha(), t.momentum(), t.eps(), t.weight_decay(),
                          t.learning_rate_factor(), t.centered(), has_momentum});
}

struct LionNumbers {
  float beta1;
  float beta2;
  float weight_decay;
  float rate_factor;
};

__global__ void lion_kernel(List weights, List grads, List means, const float* scale_at,
                            const StepHead* head, UpdateWords words, LionNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const Chunk chunk = weights.chunks[blockIdx.x];
  float* const w = weights.entries[chunk.entry].data;
  const float* const g = grads.entries[chunk.entry].data;
  float* const m = means.entries[chunk.entry].data;
  const float scale = *scale_at;
  const float rate = *words.learning_rate * a.rate_factor;
  const float keep = 1 - rate * a.weight_decay;
  bool finite = true;
  for_chunk(chunk, false, [&](uint64_t i, bool) {
    const float d = g[i] * scale;
    const float direction = a.beta1 * m[i] + (1 - a.beta1) * d;
    // What is not a number stays so.
    const float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : direction;
    m[i] = a.beta2 * m[i] + (1 - a.beta2) * d;
    w[i] = w[i] * keep - rate * sign;
    finite = finite && w[i] - w[i] == 0;
  });
  report(finite, words.weights_non_finite);
}

void lion(Launch& l) {
  namespace word = step::lion;
  const auto& t = l.attributes<LionAttributes>();
  const List weights = l.in_list(0);
  const UpdateWords words = {.learning_rate = l.step(word::learning_rate),
                             .update = nullptr,
                             .non_finite = l.step(word::non_finite),
                             .weights_non_finite = l.step(word::weights_non_finite)};
  l.launch("lion", lion_kernel, weights.chunk_count, kThreads, weights, l.in_list(1), l.in_list(2),
           l.in(3), l.head(), words,
           LionNumbers{t.beta1(), t.beta2(), t.weight_decay(), t.learning_rate_factor()});
}

// One storage of Adafactor: `batch` matrices [rows, columns], or a vector, whose v is `row`.
struct Factored {
  float* w;
  const float* g;
  float* row;
  float* column;  // null: a vector
  uint64_t batch, rows, columns;
  float* parts_of_w;  // partial sums of squares, `parts` of each
  float* parts_of_u;
  float* means;  // of the rows of each matrix
  unsigned parts;

  __device__ uint64_t size() const { return batch * rows * columns; }
};

struct AdafactorNumbers {
  float beta2_decay;
  float eps1;
  float eps2;
  float d;
  float weight_decay;
  float rate_factor;
};

__device__ float new_weight(const UpdateWords& words, const AdafactorNumbers& a) {
  return powf(static_cast<float>(*words.update), a.beta2_decay);
}

// The row moments, a team each; of a vector its moments, a thread each.
__global__ void adafactor_rows_kernel(Factored f, const float* scale_at, const StepHead* head,
                                      UpdateWords words, AdafactorNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const float scale = *scale_at;
  const float b = new_weight(words, a);
  if (f.column == nullptr) {
    const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i < f.size()) {
      const float g = f.g[i] * scale;
      f.row[i] = (1 - b) * f.row[i] + b * (g * g);
    }
    return;
  }
  const uint64_t row = team_row<kLanes>();
  if (row >= f.batch * f.rows) {
    return;
  }
  float sum = 0;
  for (uint64_t c = team_lane<kLanes>(); c < f.columns; c += kLanes) {
    const float g = f.g[row * f.columns + c] * scale;
    sum += g * g;
  }
  sum = team_sum<kLanes>(sum);
  if (team_lane<kLanes>() == 0) {
    f.row[row] = (1 - b) * f.row[row] + b * (sum / static_cast<float>(f.columns));
  }
}

// The column moments: `blocks` blocks for each matrix.
__global__ void adafactor_columns_kernel(Factored f, const float* scale_at, const StepHead* head,
                                         UpdateWords words, AdafactorNumbers a, unsigned width,
                                         unsigned blocks) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const float scale = *scale_at;
  const float b = new_weight(words, a);
  const uint64_t matrix = blockIdx.x / blocks;
  const uint64_t column = uint64_t{blockIdx.x % blocks} * width + threadIdx.x % width;
  const bool mine = column < f.columns;
  const float* const from = f.g + matrix * f.rows * f.columns + (mine ? column : 0);
  const float sum = column_sum(width, 0, mine ? f.rows : 0, [&](uint64_t r) {
    const float g = from[r * f.columns] * scale;
    return g * g;
  });
  if (mine && threadIdx.x < width) {
    float& to = f.column[matrix * f.columns + column];
    to = (1 - b) * to + b * (sum / static_cast<float>(f.rows));
  }
}

// The first `parts` blocks add squares of w, the others the rows of a matrix each.
__global__ void adafactor_means_kernel(Factored f) {
  float sum = 0;
  if (blockIdx.x < f.parts) {
    for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < f.size();
         i += uint64_t{f.parts} * kThreads) {
      sum += f.w[i] * f.w[i];
    }
    sum = team_sum<kThreads>(sum);
    if (threadIdx.x == 0) {
      f.parts_of_w[blockIdx.x] = sum;
    }
    return;
  }
  const uint64_t matrix = blockIdx.x - f.parts;
  for (uint64_t r = threadIdx.x; r < f.rows; r += kThreads) {
    sum += f.row[matrix * f.rows + r];
  }
  sum = team_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    f.means[matrix] = sum / static_cast<float>(f.rows);
  }
}

// u of one element.
__device__ float adafactor_step(const Factored& f, uint64_t i, float scale, float eps) {
  float v = 0;
  if (f.column == nullptr) {
    v = f.row[i];
  } else {
    const uint64_t row = i / f.columns;
    const uint64_t matrix = row / f.rows;
    v = f.row[row] / fmaxf(f.means[matrix], eps) * f.column[matrix * f.columns + i % f.columns];
  }
  return f.g[i] * scale / sqrtf(fmaxf(v, eps * eps));
}

__global__ void adafactor_size_kernel(Factored f, const float* scale_at, AdafactorNumbers a) {
  const float scale = *scale_at;
  float sum = 0;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < f.size();
       i += uint64_t{f.parts} * kThreads) {
    const float u = adafactor_step(f, i, scale, a.eps1);
    sum += u * u;
  }
  sum = team_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    f.parts_of_u[blockIdx.x] = sum;
  }
}

__global__ void adafactor_apply_kernel(Factored f, const float* scale_at, const StepHead* head,
                                       UpdateWords words, AdafactorNumbers a) {
  if (halted(head, words.non_finite)) {
    return;
  }
  const auto rms = [&](const float* parts) {
    const float sum = team_sum<kThreads>(threadIdx.x < f.parts ? parts[threadIdx.x] : 0.0f);
    return sqrtf(sum / static_cast<float>(f.size()));
  };
  const float scale = *scale_at;
  const float rate = *words.learning_rate * a.rate_factor;
  const float least = 1 / sqrtf(static_cast<float>(*words.update));
  const float alpha = fmaxf(a.eps2, rms(f.parts_of_w)) * fminf(rate, least);
  const float factor = alpha / fmaxf(1.0f, rms(f.parts_of_u) / a.d);
  const float keep = 1 - rate * a.weight_decay;
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < f.size()) {
    f.w[i] = f.w[i] * keep - factor * adafactor_step(f, i, scale, a.eps1);
    report(f.w[i] - f.w[i] == 0, words.weights_non_finite);
  }
}

constexpr uint64_t kMostParts = kThreads;

// There are no more matrices than elements, and no entry has more of those than the operand.
uint64_t adafactor_workspace(const NodeView& node) {
  return (2 * kMostParts + static_cast<uint64_t>(node.in(0).elements())) * sizeof(float);
}

// Storage after storage, each with as many launches as its form asks for.
void adafactor(Launch& l) {
  namespace word = step::adafactor;
  const auto& t = l.attributes<AdafactorAttributes>();
  const UpdateWords words = {.learning_rate = l.step(word::learning_rate),
                             .update = l.step(word::update),
                             .non_finite = l.step(word::non_finite),
                             .weights_non_finite = l.step(word::weights_non_finite)};
  const AdafactorNumbers a = {.beta2_decay = t.beta2_decay(),
                              .eps1 = t.eps1() == 0 ? 0x1p-23f : t.eps1(),
                              .eps2 = t.eps2(),
                              .d = t.d(),
                              .weight_decay = t.weight_decay(),
                              .rate_factor = t.learning_rate_factor()};
  const bool matrices = l.has_input(4);
  const float* const scale = l.in(2);
  const std::vector<ListEntry> weights = l.in_entries(0);
  const std::vector<ListEntry> grads = l.in_entries(1);
  const std::vector<ListEntry> rows = l.in_entries(3);
  const std::vector<ListEntry> columns = matrices ? l.in_entries(4) : rows;
  for (size_t e = 0; e < weights.size(); ++e) {
    const uint64_t n = weights[e].elements;
    if (n == 0) {
      continue;
    }
    Factored f = {weights[e].data, grads[e].data, rows[e].data, nullptr, 1, 1, n, {}, {}, {}, 1};
    if (matrices) {
      f.column = columns[e].data;
      f.batch = rows[e].elements * columns[e].elements / n;
      f.rows = rows[e].elements / f.batch;
      f.columns = columns[e].elements / f.batch;
    }
    f.parts = static_cast<unsigned>(std::clamp<uint64_t>(n / kChunk, 1, kMostParts));
    f.parts_of_w = l.workspace();
    f.parts_of_u = f.parts_of_w + kMostParts;
    f.means = f.parts_of_u + kMostParts;
    l.launch("adafactor rows", adafactor_rows_kernel,
             matrices ? blocks_for(f.batch * f.rows, kThreads / kLanes) : blocks_for(n, kThreads),
             kThreads, f, scale, l.head(), words, a);
    if (matrices) {
      const unsigned width = column_width(f.columns, kLanes);
      const unsigned blocks = blocks_for(f.columns, width);
      l.launch("adafactor columns", adafactor_columns_kernel,
               static_cast<unsigned>(f.batch) * blocks, kThreads, f, scale, l.head(), words, a,
               width, blocks);
    }
    l.launch("adafactor means", adafactor_means_kernel,
             dim3(f.parts + static_cast<unsigned>(matrices ? f.batch : 0)), kThreads, f);
    l.launch("adafactor size", adafactor_size_kernel, f.parts, kThreads, f, scale, a);
    l.launch("adafactor", adafactor_apply_kernel, blocks_for(n, kThreads), kThreads, f, scale,
             l.head(), words, a);
  }
}

}  // namespace

BOWLINE_CUDA_KERNEL(adagrad, .run = adagrad);
BOWLINE_CUDA_KERNEL(rms_prop, .run = rms_prop);
BOWLINE_CUDA_KERNEL(lion, .run = lion);
BOWLINE_CUDA_KERNEL(adafactor, .run = adafactor, .workspace = adafactor_workspace);
BOWLINE_CUDA_KERNEL(zero_grad, .run = zero_grad);
BOWLINE_CUDA_KERNEL(accumulate_grad, .run = accumulate_grad);
BOWLINE_CUDA_KERNEL(clip_by_global_norm, .run = clip, .workspace = clip_workspace);
BOWLINE_CUDA_KERNEL(sgd, .run = sgd);
BOWLINE_CUDA_KERNEL(adam_w, .run = adam_w);
BOWLINE_CUDA_KERNEL(loss_scale, .run = loss_scale);
BOWLINE_CUDA_KERNEL(accumulate_grad_f16, .run = accumulate_narrow<__half>);
BOWLINE_CUDA_KERNEL(accumulate_grad_bf16, .run = accumulate_narrow<__nv_bfloat16>);
BOWLINE_CUDA_KERNEL(round_weights_f16, .run = round_weights<__half>);
BOWLINE_CUDA_KERNEL(round_weights_bf16, .run = round_weights<__nv_bfloat16>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::optimize_kernels
