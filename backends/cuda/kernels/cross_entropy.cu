//! ops CrossEntropy CrossEntropyGrad
// A team per row. A label equal to ignore_index is not counted; another one outside [0, classes) sets the error word.
#include "device/exponential_sum.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace {

struct Labels {
  const int32_t* data;
  uint64_t rows, classes;
  int32_t ignore_index;
  device::StepHead* head;
  uint32_t node;
};

// lse, and the loss of every row.
template <unsigned kTeam, int kWidth>
__global__ void cross_entropy_kernel(const float* x, Labels labels, float* lse, float* losses) {
  const uint64_t row = team_row<kTeam>();
  if (row >= labels.rows) {
    return;
  }
  x += row * labels.classes;
  const ExponentialSum total = exponential_sum<kTeam, kWidth>(x, labels.classes);
  if (team_lane<kTeam>() == 0) {
    const float log_sum = logf(total.sum);
    const int32_t label = labels.data[row];
    const bool counted = label != labels.ignore_index;
    const bool inside = label >= 0 && static_cast<uint64_t>(label) < labels.classes;
    lse[row] = total.top + log_sum;
    losses[row] = counted && inside ? log_sum + (total.top - x[label]) : 0.0f;
    if (counted && !inside) {
      bad_index(labels.head, labels.node, label);
    }
  }
}

// One block: the number of rows that count.
__device__ float counted_rows(const Labels& labels) {
  float count = 0;
  for (uint64_t i = threadIdx.x; i < labels.rows; i += kRowThreads) {
    count += labels.data[i] != labels.ignore_index ? 1.0f : 0.0f;
  }
  return team_sum<kRowThreads>(count);
}

__global__ void total_loss_kernel(const float* losses, Labels labels, float* loss, bool mean) {
  float sum = 0;
  for (uint64_t i = threadIdx.x; i < labels.rows; i += kRowThreads) {
    sum += losses[i];
  }
  sum = team_sum<kRowThreads>(sum);
  const float count = counted_rows(labels);
  if (threadIdx.x == 0) {
    *loss = mean && count > 0 ? sum / count : sum;
  }
}

__global__ void count_rows_kernel(Labels labels, float* count) {
  const float all = counted_rows(labels);
  if (threadIdx.x == 0) {
    *count = all;
  }
}

// dx may lie on x. A thread loads several elements before it stores the first.
template <unsigned kTeam, int kWidth>
__global__ void cross_entropy_grad_kernel(const float* x, Labels labels, const float* lse,
                                          const float* dloss, const float* count, float* dx) {
  constexpr int kLoads = 4;
  constexpr uint64_t kStep = kTeam * kWidth;
  const uint64_t row = team_row<kTeam>();
  if (row >= labels.rows) {
    return;
  }
  const uint64_t n = labels.classes;
  const int32_t label = labels.data[row];
  const bool counted = label != labels.ignore_index;
  const float factor = *dloss / (count != nullptr && *count > 0 ? *count : 1.0f);
  const float row_lse = lse[row];
  x += row * n;
  dx += row * n;
  for (uint64_t first = team_lane<kTeam>() * kWidth; first < n; first += kLoads * kStep) {
    float v[kLoads][kWidth] = {};
    for (int b = 0; b < kLoads; ++b) {
      if (first + b * kStep < n) {
        load(x + first + b * kStep, v[b]);
      }
    }
    for (int b = 0; b < kLoads; ++b) {
      const uint64_t i = first + b * kStep;
      if (i >= n) {
        break;
      }
      for (int k = 0; k < kWidth; ++k) {
        const float hit = static_cast<int64_t>(i) + k == label ? 1.0f : 0.0f;
        v[b][k] = counted ? (expf(v[b][k] - row_lse) - hit) * factor : 0.0f;
      }
      store(dx + i, v[b]);
    }
  }
}

Labels labels_of(const Launch& l) {
  return {l.in_i32(1),
          static_cast<uint64_t>(l.in_shape(1).elements()),
          static_cast<uint64_t>(l.in_shape(0).back()),
          l.attributes<CrossEntropyAttributes>().ignore_index(),
          l.head(),
          l.node()};
}
bool is_mean(const Launch& l) {
  return l.attributes<CrossEntropyAttributes>().reduction() == Reduction::mean;
}

uint64_t cross_entropy_workspace(const NodeView& node) {
  return static_cast<uint64_t>(node.in(1).elements()) * sizeof(float);
}

void cross_entropy(Launch& l) {
  const Labels labels = labels_of(l);
  launch_rows(
      l, "cross entropy", labels.rows, labels.classes,
      labels.classes % 4 == 0 && aligned16(l.in(0)),
      [](auto team, auto width) { return cross_entropy_kernel<team(), width()>; }, l.in(0), labels,
      l.out(1), l.workspace());
  l.launch("cross entropy, total", total_loss_kernel, 1, kRowThreads, l.workspace(), labels,
           l.out(0), is_mean(l));
}

uint64_t cross_entropy_grad_workspace(const NodeView&) { return sizeof(float); }

void cross_entropy_grad(Launch& l) {
  const Labels labels = labels_of(l);
  if (labels.rows == 0) {
    return;
  }
  float* count = nullptr;
  if (is_mean(l)) {
    count = l.workspace();
    l.launch("cross entropy, count", count_rows_kernel, 1, kRowThreads, labels, count);
  }
  launch_rows(
      l, "cross entropy gradient", labels.rows, labels.classes,
      labels.classes % 4 == 0 && aligned16(l.in(0), l.out(0)),
      [](auto team, auto width) { return cross_entropy_grad_kernel<team(), width()>; }, l.in(0),
      labels, l.in(2), l.in(3), count, l.out(0));
}

}  // namespace

BOWLINE_CUDA_KERNEL(cross_entropy, .run = cross_entropy, .workspace = cross_entropy_workspace);
BOWLINE_CUDA_KERNEL(cross_entropy_grad, .run = cross_entropy_grad,
                    .workspace = cross_entropy_grad_workspace);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
