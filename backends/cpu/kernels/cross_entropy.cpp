//! ops CrossEntropy CrossEntropyGrad
// loss = mean (or sum) over counted rows of lse - logits[label];  dlogits = factor (softmax(logits) - [label]).
// A label outside the vocabulary is reported and counts as nothing: the caller discards the step.
#include <algorithm>

#include "compute/row.h"
#include "kernel.h"

namespace bowline::cpu {
namespace {

struct Rows {
  size_t rows;
  size_t n;
  const int32_t* labels;
  int32_t ignore_index;
  LabelCheck check;
};

Rows rows_of(const Launch& l) {
  const Shape& logits = *l.in[0].shape;
  Rows r{static_cast<size_t>(logits.rows()),
         static_cast<size_t>(logits.back()),
         l.in[1].i32(),
         l.attributes<CrossEntropyAttributes>().ignore_index(),
         {}};
  r.check = check_labels(r.rows, r.n, r.labels, r.ignore_index);
  if (!r.check.valid) {
    l.bad_index(r.check.bad_label);
  }
  return r;
}

// What each counted row is multiplied with.
double weight(const Launch& l, const Rows& r) {
  const bool mean = l.attributes<CrossEntropyAttributes>().reduction() == Reduction::mean;
  return !mean ? 1.0 : r.check.counted == 0 ? 0.0 : 1.0 / static_cast<double>(r.check.counted);
}

void run(const Launch& l) {
  const Rows r = rows_of(l);
  const float* logits = l.in[0].f32();
  float* lse = l.out[1].f32();
  log_sum_exp(l.threads, r.rows, r.n, logits, lse);
  double sum = 0;
  for (size_t i = 0; i < r.rows && r.check.valid; ++i) {
    if (r.labels[i] != r.ignore_index) {
      sum += static_cast<double>(lse[i]) -
             static_cast<double>(logits[i * r.n + static_cast<size_t>(r.labels[i])]);
    }
  }
  *l.out[0].f32() = static_cast<float>(sum * weight(l, r));
}

void run_grad(const Launch& l) {
  const Rows r = rows_of(l);
  if (!r.check.valid) {
    std::fill_n(l.out[0].f32(), r.rows * r.n, 0.0f);
    return;
  }
  const float factor = static_cast<float>(weight(l, r) * static_cast<double>(*l.in[3].f32()));
  cross_entropy_backward(l.threads, r.rows, r.n, l.in[0].f32(), r.labels, r.ignore_index, factor,
                         l.out[0].f32());
}

}  // namespace

extern const Kernel kernel_cross_entropy, kernel_cross_entropy_grad;
const Kernel kernel_cross_entropy{.run = run};
const Kernel kernel_cross_entropy_grad{.run = run_grad};

}  // namespace bowline::cpu
