//! ops(f32, f16, bf16) CrossEntropy CrossEntropyGrad
//! ops(f32, f16, bf16) NegativeLogLikelihood NegativeLogLikelihoodGrad
// Losses with labels. A label outside the classes is reported and contributes nothing, because the
// caller discards the step. Logits that are not f32 are converted into the workspace.
#include <algorithm>

#include "base/checked.h"
#include "compute/convert.h"
#include "compute/planes.h"
#include "compute/row.h"
#include "core/element_types.h"
#include "kernel.h"

namespace bowline::detail::cpu::cross_entropy_kernels {
namespace {

struct Rows {
  size_t rows;
  size_t n;
  const int32_t* labels;
  int32_t ignore_index;
  Reduction reduction;
  LabelCheck check;

  bool counts(size_t row) const { return labels[row] != ignore_index; }
};

template <class Table>
Rows rows_of(const Launch& l) {
  const auto& t = l.attributes<Table>();
  Rows r{static_cast<size_t>(l.in[1].elements()),
         static_cast<size_t>(l.in[0].shape->back()),
         l.in[1].i32(),
         t.ignore_index(),
         t.reduction(),
         {}};
  r.check = check_labels(r.rows, r.n, r.labels, r.ignore_index);
  if (!r.check.valid) {
    l.bad_index(r.check.bad_label);
  }
  return r;
}

// The factor of each counted row, where `weight` is the sum of all weights.
double share(const Rows& r, double weight) {
  return r.reduction == Reduction::mean && weight != 0 ? 1.0 / weight : 1.0;
}

constexpr uint64_t kAlignment = 64;

uint64_t terms_bytes(uint64_t rows) { return round_up(rows * sizeof(double), kAlignment); }

uint64_t wide_bytes(const device::NodeQuery& node) {
  return node.inputs[0].dtype == DType::f32
             ? 0
             : static_cast<uint64_t>(node.inputs[0].shape.elements()) * sizeof(float);
}

// The logits as f32.
template <class T>
const float* wide_logits(const Launch& l, [[maybe_unused]] std::byte* scratch) {
  if constexpr (std::same_as<T, float>) {
    return l.in[0].f32();
  } else {
    auto* const wide = reinterpret_cast<float*>(scratch);
    widen(l.threads, static_cast<size_t>(l.in[0].elements()), l.in[0].as<const T>(), wide);
    return wide;
  }
}

// Adds the terms of the counted rows to the loss.
void reduce(const Launch& l, const Rows& r, const double* terms, double weight) {
  float* const loss = l.out[0].f32();
  if (r.reduction == Reduction::none) {
    for (size_t i = 0; i < r.rows; ++i) {
      loss[i] = r.check.valid && r.counts(i) ? static_cast<float>(terms[i]) : 0.0f;
    }
    return;
  }
  double sum = 0;
  for (size_t i = 0; i < r.rows && r.check.valid; ++i) {
    sum += r.counts(i) ? terms[i] : 0;
  }
  *loss = static_cast<float>(sum * share(r, weight));
}

uint64_t cross_entropy_workspace(const device::NodeQuery& node, const Threads&) {
  return terms_bytes(static_cast<uint64_t>(node.inputs[1].shape.elements())) + wide_bytes(node);
}

template <class T>
void run(const Launch& l) {
  const Rows r = rows_of<CrossEntropyAttributes>(l);
  auto* const terms = reinterpret_cast<double*>(l.workspace);
  const float* const logits = wide_logits<T>(l, l.workspace + terms_bytes(r.rows));
  const auto smoothing =
      static_cast<double>(l.attributes<CrossEntropyAttributes>().label_smoothing());
  float* const lse = l.out[1].f32();
  log_sum_exp(l.threads, r.rows, r.n, logits, lse);
  parallel_rows(l.threads, r.check.valid ? static_cast<int64_t>(r.rows) : 0,
                smoothing == 0 ? 4 : kGrain, [&](int64_t at) {
                  const auto i = static_cast<size_t>(at);
                  if (!r.counts(i)) {
                    return;
                  }
                  const float* const row = logits + i * r.n;
                  const auto of_label = static_cast<double>(row[static_cast<size_t>(r.labels[i])]);
                  terms[i] = static_cast<double>(lse[i]) - of_label;
                  if (smoothing != 0) {
                    const double mean =
                        static_cast<double>(sum_of(r.n, row)) / static_cast<double>(r.n);
                    terms[i] += smoothing * (of_label - mean);
                  }
                });
  reduce(l, r, terms, static_cast<double>(r.check.counted));
}

uint64_t cross_entropy_grad_workspace(const device::NodeQuery& node, const Threads&) {
  return wide_bytes(node);
}

template <class T>
void run_grad(const Launch& l) {
  const Rows r = rows_of<CrossEntropyAttributes>(l);
  T* const dlogits = l.out[0].as<T>();
  if (!r.check.valid) {
    std::fill_n(dlogits, r.rows * r.n, T{});
    return;
  }
  const float* const dloss = l.in[3].f32();
  RowFactor factor;
  if (r.reduction == Reduction::none) {
    factor.each = dloss;
  } else {
    factor.all = static_cast<float>(share(r, static_cast<double>(r.check.counted)) *
                                    static_cast<double>(*dloss));
  }
  const float* const logits = wide_logits<T>(l, l.workspace);
  float* const to = std::same_as<T, float> ? l.out[0].f32() : reinterpret_cast<float*>(l.workspace);
  cross_entropy_backward(l.threads, r.rows, r.n, logits, r.labels, r.ignore_index, factor,
                         l.attributes<CrossEntropyAttributes>().label_smoothing(), to);
  if constexpr (!std::same_as<T, float>) {
    narrow(l.threads, r.rows * r.n, to, dlogits);
  }
}

// The weight of the class of a row; 1 if no weights are given.
template <class T>
double weight_of(const Launch& l, size_t input, int32_t label) {
  return l.has_input(input) ? static_cast<double>(to_f32(l.in[input].as<const T>()[label])) : 1.0;
}

template <class T>
double weight_of_all(const Launch& l, const Rows& r, size_t input) {
  double sum = 0;
  for (size_t i = 0; i < r.rows && r.check.valid; ++i) {
    sum += r.counts(i) ? weight_of<T>(l, input, r.labels[i]) : 0;
  }
  return sum;
}

uint64_t likelihood_workspace(const device::NodeQuery& node, const Threads&) {
  return terms_bytes(static_cast<uint64_t>(node.inputs[1].shape.elements()));
}

template <class T>
void run_likelihood(const Launch& l) {
  const Rows r = rows_of<NegativeLogLikelihoodAttributes>(l);
  const T* const x = l.in[0].as<const T>();
  auto* const terms = reinterpret_cast<double*>(l.workspace);
  for (size_t i = 0; i < r.rows && r.check.valid; ++i) {
    if (r.counts(i)) {
      terms[i] = -weight_of<T>(l, 2, r.labels[i]) *
                 static_cast<double>(to_f32(x[i * r.n + static_cast<size_t>(r.labels[i])]));
    }
  }
  reduce(l, r, terms, weight_of_all<T>(l, r, 2));
}

template <class T>
void run_likelihood_grad(const Launch& l) {
  const Rows r = rows_of<NegativeLogLikelihoodAttributes>(l);
  const float* const dloss = l.in[2].f32();
  T* const dx = l.out[0].as<T>();
  const double each = share(r, weight_of_all<T>(l, r, 3));
  parallel_rows(
      l.threads, static_cast<int64_t>(r.rows), static_cast<int64_t>(r.n), [&](int64_t at) {
        const auto i = static_cast<size_t>(at);
        std::fill_n(dx + i * r.n, r.n, T{});
        if (r.check.valid && r.counts(i)) {
          const auto d = static_cast<double>(dloss[r.reduction == Reduction::none ? i : 0]);
          const double slope = -weight_of<T>(l, 3, r.labels[i]) * each * d;
          dx[i * r.n + static_cast<size_t>(r.labels[i])] = from_f32<T>(static_cast<float>(slope));
        }
      });
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(cross_entropy, .run = run<T>, .workspace = cross_entropy_workspace);
BOWLINE_KERNELS_OF_FLOATS(cross_entropy_grad, .run = run_grad<T>,
                          .workspace = cross_entropy_grad_workspace);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood, .run = run_likelihood<T>,
                          .workspace = likelihood_workspace);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood_grad, .run = run_likelihood_grad<T>);

}  // namespace bowline::detail::cpu::cross_entropy_kernels
