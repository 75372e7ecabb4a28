// Operators along the last axis of an array [rows, n]: norms, softmax, cross entropy.
// The arrays are f32; norms also accept f16 and bf16.
//
// Numerics  sums in f32 with a fixed order. Sums over rows run over blocks of rows, whose number
//           depends only on `rows`. The bits do not depend on the number of threads. NaN and
//           infinities propagate.
// Threads   uses the pool for larger arrays; nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "threads.h"

namespace bowline::detail::cpu {

// LayerNorm: y = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta, var biased. Without beta (null)
// RmsNorm: y = x / sqrt(mean(x^2) + eps) * gamma. y may be x.
template <class T>
void norm(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma, const T* beta,
          float eps, T* y);

// With h = (x - mean) r, r = 1 / sqrt(var + eps), g = dy * gamma:
//
//   dx = r (g - mean(g) - h mean(g h))
//   dgamma = sum of dy h over rows,  dbeta = sum of dy over rows
//
// Without dbeta (null) the gradient of RmsNorm: h = x r, r = 1 / sqrt(mean(x^2) + eps),
// dx = r (g - h mean(g h)). Recomputes mean and r. dx may be dy or x.
template <class T>
void norm_backward(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma, const T* dy,
                   float eps, T* dx, T* dgamma, T* dbeta, void* scratch);

size_t norm_backward_scratch_bytes(size_t rows, size_t n);

// y = e^(x - max) / sum of e^(x - max). y may be x.
void softmax(Threads& threads, size_t rows, size_t n, const float* x, float* y);

// dx = y (dy - sum of dy y). dx may be dy.
void softmax_backward(Threads& threads, size_t rows, size_t n, const float* y, const float* dy,
                      float* dx);

// y = x - max - log(sum of e^(x - max)). y may be x.
void log_softmax(Threads& threads, size_t rows, size_t n, const float* x, float* y);

// dx = dy - e^y times the sum of dy. dx may be dy.
void log_softmax_backward(Threads& threads, size_t rows, size_t n, const float* y, const float* dy,
                          float* dx);

// y [rows] = log(sum of e^x).
void log_sum_exp(Threads& threads, size_t rows, size_t n, const float* x, float* y);

// Labels of cross entropy. A row with ignore_index has loss 0 and gradient 0, and is not counted.
struct LabelCheck {
  size_t counted = 0;
  bool valid = true;
  int32_t bad_label = 0;  // the first label outside 0 .. n - 1, if not valid
};
LabelCheck check_labels(size_t rows, size_t n, const int32_t* labels, int32_t ignore_index);

// The factor of the gradient of each row: one for all rows, or one per row.
struct RowFactor {
  float all = 1;
  const float* each = nullptr;
};

// dlogits = factor (softmax(logits) - (1 - smoothing) [label] - smoothing / n). dlogits may be
// logits.
void cross_entropy_backward(Threads& threads, size_t rows, size_t n, const float* logits,
                            const int32_t* labels, int32_t ignore_index, const RowFactor& factor,
                            float smoothing, float* dlogits);

}  // namespace bowline::detail::cpu
