// Optimizers on one f32 array, beside AdamW and SGD of elementwise.h. The gradient is first
// multiplied by grad_scale; what each computes stands at its operator (runtime/ops). All return
// whether every new w is finite.
//
// Threads   use the pool for larger arrays; the bits do not depend on the number of threads;
//           nothing is allocated.
#pragma once

#include <cstddef>

#include "threads.h"

namespace bowline::detail::cpu {

struct AdagradStep {
  float learning_rate = 0;  // of this update
  float eps = 0;
  float weight_decay = 0;
  float grad_scale = 1;
};
bool adagrad(Threads& threads, size_t n, const AdagradStep& step, const float* g, float* w,
             float* s);

// `mean` is null if not centered, `b` without momentum.
struct RmsPropStep {
  float learning_rate = 0;
  float alpha = 0;
  float one_minus_alpha = 0;
  float momentum = 0;
  float eps = 0;
  float weight_decay = 0;
  float grad_scale = 1;
};
bool rms_prop(Threads& threads, size_t n, const RmsPropStep& step, const float* g, float* w,
              float* v, float* mean, float* b);

struct LionStep {
  float learning_rate = 0;
  float keep = 1;  // 1 - learning_rate * weight_decay
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float grad_scale = 1;
};
bool lion(Threads& threads, size_t n, const LionStep& step, const float* g, float* w, float* m);

// `batch` matrices [rows, columns] side by side, with `row` [batch, rows] and `column` [batch,
// columns]; of a vector `row` is all of v, `column` is null, and rows is 1.
struct AdafactorShape {
  size_t batch = 1;
  size_t rows = 1;
  size_t columns = 0;
};
struct AdafactorStep {
  double learning_rate = 0;
  double least_rate = 0;  // 1 / sqrt(update)
  double beta = 0;        // what the new squares weigh
  double eps = 0;
  double eps2 = 0;
  double d = 1;
  double weight_decay = 0;
  float grad_scale = 1;
};
bool adafactor(Threads& threads, const AdafactorShape& shape, const AdafactorStep& step,
               const float* g, float* w, float* row, float* column, void* scratch);
size_t adafactor_scratch_bytes(size_t n);

}  // namespace bowline::detail::cpu
