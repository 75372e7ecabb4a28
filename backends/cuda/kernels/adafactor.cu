//! ops(f32, f16, bf16) Adafactor
// Adafactor (runtime/ops/adafactor.cpp). The storages are updated one after the other, each with
// these launches: row moments, column moments (matrices only), sums of w^2 and means of the row
// moments, sums of u^2, and the new weights.
#include <algorithm>

#include "core/optimizers.h"
#include "device/begin.cuh"
#include "device/last_block.cuh"
#include "device/rows.cuh"
#include "device/update.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::adafactor_kernels {
namespace {

using device::StepHead;

constexpr unsigned kThreads = kRowThreads;

// The per-step scalars, in device memory.
struct UpdateWords {
  const float* learning_rate;
  const uint32_t* update;
  const uint32_t* non_finite;
  uint32_t* weights_non_finite;
};

// One storage: `batch` matrices [rows, columns], or a vector, whose second moments are `row`.
struct Factored {
  float* w;
  const float* g;
  float* row;
  float* column;  // null: a vector
  uint64_t batch, rows, columns;
  float* parts_of_w;  // `parts` partial sums of w^2, and as many of u^2
  float* parts_of_u;
  float* means;  // [batch]: mean of the row moments of each matrix
  unsigned parts;
  unsigned row_parts;      // in which blocks add the rows of a matrix
  float* parts_of_column;  // [row_parts, batch, columns], if there are several

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

// Updates the row moments, one warp per row. For a vector, updates its moments, one thread per
// element.
__global__ void adafactor_rows_kernel(Factored f, const float* scale_at, const StepHead* head,
                                      UpdateWords words, AdafactorNumbers a) {
  begin_kernel();
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

// Updates the column moments. Each matrix has `blocks` blocks per part of its rows, and each block
// adds `width` columns. The last block of some columns adds their parts.
__global__ void adafactor_columns_kernel(Factored f, const float* scale_at, const StepHead* head,
                                         UpdateWords words, AdafactorNumbers a, unsigned width,
                                         unsigned blocks, uint32_t* counters) {
  begin_kernel();
  if (halted(head, words.non_finite)) {
    return;
  }
  const float scale = *scale_at;
  const float b = new_weight(words, a);
  const uint64_t matrix = blockIdx.x / blocks;
  const uint64_t column = uint64_t{blockIdx.x % blocks} * width + threadIdx.x % width;
  const bool mine = column < f.columns;
  const float* const from = f.g + matrix * f.rows * f.columns + (mine ? column : 0);
  const uint64_t each = (f.rows + f.row_parts - 1) / f.row_parts;
  const uint64_t begin = blockIdx.y * each;
  float sum = column_sum(width, begin, mine ? min(begin + each, f.rows) : 0, [&](uint64_t r) {
    const float g = from[r * f.columns] * scale;
    return g * g;
  });
  const uint64_t at = matrix * f.columns + column;
  if (f.row_parts > 1) {
    if (mine && threadIdx.x < width) {
      f.parts_of_column[blockIdx.y * f.batch * f.columns + at] = sum;
    }
    if (!arrives_last(counters + blockIdx.x, f.row_parts)) {
      return;
    }
    sum = column_sum(width, 0, mine ? f.row_parts : 0, [&](uint64_t part) {
      return f.parts_of_column[part * f.batch * f.columns + at];
    });
  }
  if (mine && threadIdx.x < width) {
    f.column[at] = (1 - b) * f.column[at] + b * (sum / static_cast<float>(f.rows));
  }
}

// The first `parts` blocks compute one partial sum of w^2 each. Every other block computes the mean
// of the row moments of one matrix.
__global__ void adafactor_means_kernel(Factored f) {
  begin_kernel();
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

// The update u of one element.
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

// Each block computes one partial sum of u^2.
__global__ void adafactor_size_kernel(Factored f, const float* scale_at, AdafactorNumbers a) {
  begin_kernel();
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

// Updates the weights, one thread per element. Every block adds the partial sums again. `rounded`
// are 16-bit weights, of which f.w are the masters.
template <class T>
__global__ void adafactor_apply_kernel(Factored f, const float* scale_at, const StepHead* head,
                                       UpdateWords words, AdafactorNumbers a, T* rounded) {
  begin_kernel();
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
    if constexpr (!std::is_same_v<T, float>) {
      write(rounded + i, f.w[i]);
    }
    report(f.w[i] - f.w[i] == 0, words.weights_non_finite);
  }
}

constexpr uint64_t kMostParts = kThreads;
constexpr uint64_t kRowsOfPart = 512;  // at least, if rows have several parts

// Two lists of partial sums, one mean per matrix, and the parts of the columns. A storage has at
// most as many matrices as elements, and the operand has as many elements as the largest storage.
uint64_t adafactor_workspace(const NodeView& node) {
  const auto elements = static_cast<uint64_t>(node.in(0).elements());
  return (2 * kMostParts + elements + elements / kRowsOfPart) * sizeof(float);
}

template <class T>
void adafactor(Launch& l) {
  namespace word = step::adafactor;
  const auto& t = l.attributes<AdafactorAttributes>();
  const UpdateWords words = {.learning_rate = l.step(word::learning_rate),
                             .update = l.step(word::update),
                             .non_finite = l.step(word::non_finite),
                             .weights_non_finite = l.step(word::weights_non_finite)};
  const AdafactorNumbers a = {.beta2_decay = t.beta2_decay(),
                              .eps1 = t.eps() == 0 ? 0x1p-23f : t.eps(),
                              .eps2 = t.eps2(),
                              .d = t.update_clip(),
                              .weight_decay = t.weight_decay(),
                              .rate_factor = t.learning_rate_factor()};
  const size_t values = updated_values(l.type(), l.inputs());
  const bool matrices = l.inputs() == (values == 0 ? 5 : 6);
  const float* const scale = l.in(2);
  const std::vector<ListEntry> weights = l.in_entries(values);
  const std::vector<ListEntry> rounded = l.in_entries(0);
  const std::vector<ListEntry> grads = l.in_entries(1);
  const std::vector<ListEntry> rows = l.in_entries(3);
  const std::vector<ListEntry> columns = matrices ? l.in_entries(4) : rows;
  for (size_t e = 0; e < weights.size(); ++e) {
    const uint64_t n = weights[e].elements;
    if (n == 0) {
      continue;
    }
    Factored f = {
        weights[e].data, grads[e].data, rows[e].data, nullptr, 1, 1, n, {}, {}, {}, 1, 1, {}};
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
      const uint64_t blocks_of_part = f.batch * blocks;
      f.parts_of_column = f.means + f.batch;
      f.row_parts = blocks_of_part > kBlockCounters
                        ? 1
                        : static_cast<unsigned>(std::max<uint64_t>(f.rows / kRowsOfPart, 1));
      l.launch("adafactor columns", adafactor_columns_kernel,
               dim3(static_cast<unsigned>(blocks_of_part), f.row_parts), kThreads, f, scale,
               l.head(), words, a, width, blocks, l.block_counters());
    }
    l.launch("adafactor means", adafactor_means_kernel,
             dim3(f.parts + static_cast<unsigned>(matrices ? f.batch : 0)), kThreads, f);
    l.launch("adafactor size", adafactor_size_kernel, f.parts, kThreads, f, scale, a);
    l.launch("adafactor", adafactor_apply_kernel<T>, blocks_for(n, kThreads), kThreads, f, scale,
             l.head(), words, a, reinterpret_cast<T*>(rounded[e].data));
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(adafactor, .run = adafactor<T>, .workspace = adafactor_workspace);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::adafactor_kernels
