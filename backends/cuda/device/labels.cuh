// Parts shared by losses with labels: the labels, the sums over all rows, and their scratch memory.
#pragma once

#include "device/begin.cuh"
#include "device/rows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The labels of rows. One equal to ignore_index is not counted. Another one outside [0, classes) is
// reported as an out-of-range index.
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
  begin_kernel();
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
  begin_kernel();
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

// Of input `input`.
template <class Table>
Labels labels_of(const Launch& l, size_t input, int64_t classes) {
  return {l.in_i32(input),
          static_cast<uint64_t>(l.in_shape(input).elements()),
          static_cast<uint64_t>(classes),
          l.attributes<Table>().ignore_index(),
          l.head(),
          l.node()};
}
template <class Table>
Labels labels_of(const Launch& l) {
  return labels_of<Table>(l, 1, l.in_shape(0).back());
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

inline uint64_t terms_workspace(const NodeView& node) {
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
inline float* terms_of(const Launch& l, Reduction reduction) {
  return reduction == Reduction::none ? l.out(0) : l.workspace();
}

inline uint64_t grad_workspace(const NodeView&) { return sizeof(float); }

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
