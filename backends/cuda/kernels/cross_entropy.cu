//! ops(f32, f16, bf16) CrossEntropy CrossEntropyGrad
//! ops(f32, f16, bf16) NegativeLogLikelihood NegativeLogLikelihoodGrad
// Losses with labels, one team of threads per row. A label equal to ignore_index is not counted.
// Another label outside [0, classes) is reported as an out-of-range index.
#include "device/exponential_sum.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cross_entropy_kernels {
namespace {

struct Labels {
  const int32_t* data;
  uint64_t rows, classes;
  int32_t ignore_index;
  device::StepHead* head;
  uint32_t node;

  __device__ bool counted(uint64_t row) const { return data[row] != ignore_index; }
  __device__ bool inside(uint64_t row) const {
    return data[row] >= 0 && static_cast<uint64_t>(data[row]) < classes;
  }
  // Reports a label that is neither ignore_index nor a class.
  __device__ void report(uint64_t row) const {
    if (counted(row) && !inside(row)) {
      bad_index(head, node, data[row]);
    }
  }
};

// lse and the loss of every row.
template <unsigned kTeam, int kWidth, class X>
__global__ void cross_entropy_kernel(const X* x, Labels labels, float* lse, float* losses,
                                     float smoothing) {
  const uint64_t row = team_row<kTeam>();
  if (row >= labels.rows) {
    return;
  }
  const uint64_t n = labels.classes;
  x += row * n;
  const ExponentialSum total = exponential_sum<kTeam, kWidth>(x, n);
  float below = 0;  // sum of top - x
  if (smoothing != 0) {
    for (uint64_t i = team_lane<kTeam>(); i < n; i += kTeam) {
      below += total.top - read(x + i);
    }
    below = team_sum<kTeam>(below);
  }
  if (team_lane<kTeam>() == 0) {
    const float log_sum = logf(total.sum);
    lse[row] = total.top + log_sum;
    float loss = 0;
    if (labels.counted(row) && labels.inside(row)) {
      const float of_label = total.top - read(x + labels.data[row]);
      loss = log_sum + of_label;
      if (smoothing != 0) {
        loss = log_sum + ((1 - smoothing) * of_label + smoothing * (below / static_cast<float>(n)));
      }
    }
    losses[row] = loss;
    labels.report(row);
  }
}

// -weight x[label] of every row.
template <class X>
__global__ void likelihood_kernel(const X* x, Labels labels, const X* weight, float* losses) {
  const uint64_t row = uint64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (row >= labels.rows) {
    return;
  }
  float loss = 0;
  if (labels.counted(row) && labels.inside(row)) {
    const int32_t label = labels.data[row];
    loss =
        -(weight == nullptr ? 1.0f : read(weight + label)) * read(x + row * labels.classes + label);
  }
  losses[row] = loss;
  labels.report(row);
}

// One block: adds the weights of the counted rows. Each weight is 1 if no weights are given.
template <class X>
__device__ float weight_of_all(const Labels& labels, const X* weight) {
  float sum = 0;
  for (uint64_t i = threadIdx.x; i < labels.rows; i += kRowThreads) {
    if (labels.counted(i)) {
      sum += weight == nullptr ? 1.0f : labels.inside(i) ? read(weight + labels.data[i]) : 0.0f;
    }
  }
  return team_sum<kRowThreads>(sum);
}

template <class X>
__global__ void total_loss_kernel(const float* losses, Labels labels, const X* weight, float* loss,
                                  bool mean) {
  float sum = 0;
  for (uint64_t i = threadIdx.x; i < labels.rows; i += kRowThreads) {
    sum += losses[i];
  }
  sum = team_sum<kRowThreads>(sum);
  const float all = weight_of_all(labels, weight);
  if (threadIdx.x == 0) {
    *loss = mean && all != 0 ? sum / all : sum;
  }
}

template <class X>
__global__ void weights_kernel(Labels labels, const X* weight, float* to) {
  const float all = weight_of_all(labels, weight);
  if (threadIdx.x == 0) {
    *to = all;
  }
}

// The factor of the gradient of a row: dloss, common or per row; for the mean, divided by the sum
// of all weights.
struct Factor {
  const float* dloss;
  const float* weight;  // null: not divided
  bool each;

  __device__ float of(uint64_t row) const {
    return dloss[each ? row : 0] / (weight != nullptr && *weight != 0 ? *weight : 1.0f);
  }
};

// The gradient of the elements of a row.
struct RowGradient {
  int64_t label;
  bool counted;
  float factor;
  float lse;
  float share;  // of the label smoothing, per class
  float rest;   // of the label

  template <int kMany>
  __device__ void apply(uint64_t i, float (&v)[kMany]) const {
    for (int k = 0; k < kMany; ++k) {
      const float hit = (static_cast<int64_t>(i) + k == label ? rest : 0.0f) + share;
      v[k] = counted ? (expf(v[k] - lse) - hit) * factor : 0.0f;
    }
  }
};

// dx may overwrite x. A thread loads several elements before it stores the first. The rows are in
// reverse order, because the last rows that CrossEntropy read are still in the cache.
template <unsigned kTeam, int kWidth, class X>
__global__ void cross_entropy_grad_kernel(const X* x, Labels labels, const float* lse,
                                          Factor factor, float smoothing, X* dx) {
  constexpr int kLoads = kWidth > 4 ? 2 : 4;
  constexpr uint64_t kStep = kTeam * kWidth;
  if (team_row<kTeam>() >= labels.rows) {
    return;
  }
  const uint64_t row = labels.rows - 1 - team_row<kTeam>();
  const uint64_t n = labels.classes;
  const RowGradient gradient = {labels.data[row],
                                labels.counted(row),
                                factor.of(row),
                                lse[row],
                                smoothing / static_cast<float>(n),
                                1 - smoothing};
  x += row * n;
  dx += row * n;
  const RowParts<kWidth> parts(x, n);
  const uint64_t single = parts.single(team_lane<kTeam>());
  if (single < n) {
    float v[1];
    read_some(x + single, v);
    gradient.apply(single, v);
    write_some(dx + single, v);
  }
  for (uint64_t first = parts.begin + team_lane<kTeam>() * kWidth; first < parts.end;
       first += kLoads * kStep) {
    float v[kLoads][kWidth] = {};
    for (int b = 0; b < kLoads; ++b) {
      if (first + b * kStep < parts.end) {
        read_some(x + first + b * kStep, v[b]);
      }
    }
    for (int b = 0; b < kLoads; ++b) {
      const uint64_t i = first + b * kStep;
      if (i < parts.end) {
        gradient.apply(i, v[b]);
        write_some(dx + i, v[b]);
      }
    }
  }
}

template <class X>
__global__ void likelihood_grad_kernel(Labels labels, const X* weight, Factor factor, X* dx) {
  const uint64_t i = uint64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (i >= labels.rows * labels.classes) {
    return;
  }
  const uint64_t row = i / labels.classes;
  const uint64_t column = i % labels.classes;
  const bool hit = labels.counted(row) && static_cast<int64_t>(column) == labels.data[row];
  write(dx + i, hit ? -(weight == nullptr ? 1.0f : read(weight + column)) * factor.of(row) : 0.0f);
}

template <class Table>
Labels labels_of(const Launch& l) {
  return {l.in_i32(1),
          static_cast<uint64_t>(l.in_shape(1).elements()),
          static_cast<uint64_t>(l.in_shape(0).back()),
          l.attributes<Table>().ignore_index(),
          l.head(),
          l.node()};
}

template <class X>
const X* weight_of(const Launch& l, size_t input) {
  return l.has_input(input) ? l.in_as<X>(input) : nullptr;
}

// For the mean, the sum of the weights is computed first.
template <class X>
Factor factor_of(Launch& l, const Labels& labels, Reduction reduction, const float* dloss,
                 const X* weight) {
  if (reduction != Reduction::mean) {
    return {dloss, nullptr, reduction == Reduction::none};
  }
  l.launch("weight of all rows", weights_kernel<X>, 1, kRowThreads, labels, weight, l.workspace());
  return {dloss, l.workspace(), false};
}

uint64_t terms_workspace(const NodeView& node) {
  return static_cast<uint64_t>(node.in(1).elements()) * sizeof(float);
}

// The losses of the rows are the output, or are in the workspace until they are added.
template <class X>
void add_up(Launch& l, const Labels& labels, Reduction reduction, const X* weight) {
  if (reduction != Reduction::none) {
    l.launch("total loss", total_loss_kernel<X>, 1, kRowThreads, l.workspace(), labels, weight,
             l.out(0), reduction == Reduction::mean);
  }
}
float* terms_of(const Launch& l, Reduction reduction) {
  return reduction == Reduction::none ? l.out(0) : l.workspace();
}

template <class X>
void cross_entropy(Launch& l) {
  const auto& t = l.attributes<CrossEntropyAttributes>();
  const Labels labels = labels_of<CrossEntropyAttributes>(l);
  launch_packed_rows<X>(
      l, "cross entropy", labels.rows, labels.classes, true,
      [](auto team, auto width) { return cross_entropy_kernel<team(), width(), X>; }, l.in_as<X>(0),
      labels, l.out(1), terms_of(l, t.reduction()), t.label_smoothing());
  add_up<X>(l, labels, t.reduction(), nullptr);
}

template <class X>
void negative_log_likelihood(Launch& l) {
  const Reduction reduction = l.attributes<NegativeLogLikelihoodAttributes>().reduction();
  const Labels labels = labels_of<NegativeLogLikelihoodAttributes>(l);
  l.launch("likelihood", likelihood_kernel<X>, blocks_for(labels.rows, kRowThreads), kRowThreads,
           l.in_as<X>(0), labels, weight_of<X>(l, 2), terms_of(l, reduction));
  add_up(l, labels, reduction, weight_of<X>(l, 2));
}

uint64_t grad_workspace(const NodeView&) { return sizeof(float); }

template <class X>
void cross_entropy_grad(Launch& l) {
  const auto& t = l.attributes<CrossEntropyAttributes>();
  const Labels labels = labels_of<CrossEntropyAttributes>(l);
  if (labels.rows == 0) {
    return;
  }
  const Factor factor =
      factor_of<X>(l, labels, t.reduction(), l.in(3), static_cast<const X*>(nullptr));
  launch_packed_rows<X>(
      l, "cross entropy gradient", labels.rows, labels.classes, aligned_alike(l.in(0), l.out(0)),
      [](auto team, auto width) { return cross_entropy_grad_kernel<team(), width(), X>; },
      l.in_as<X>(0), labels, l.in(2), factor, t.label_smoothing(), l.out_as<X>(0));
}

template <class X>
void negative_log_likelihood_grad(Launch& l) {
  const Labels labels = labels_of<NegativeLogLikelihoodAttributes>(l);
  if (labels.rows == 0) {
    return;
  }
  const X* const weight = weight_of<X>(l, 3);
  const Factor factor = factor_of(
      l, labels, l.attributes<NegativeLogLikelihoodAttributes>().reduction(), l.in(2), weight);
  l.launch("likelihood gradient", likelihood_grad_kernel<X>,
           blocks_for(labels.rows * labels.classes, kRowThreads), kRowThreads, labels, weight,
           factor, l.out_as<X>(0));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(cross_entropy, .run = cross_entropy<T>, .workspace = terms_workspace);
BOWLINE_KERNELS_OF_FLOATS(cross_entropy_grad, .run = cross_entropy_grad<T>,
                          .workspace = grad_workspace);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood, .run = negative_log_likelihood<T>,
                          .workspace = terms_workspace);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood_grad, .run = negative_log_likelihood_grad<T>,
                          .workspace = grad_workspace);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cross_entropy_kernels
