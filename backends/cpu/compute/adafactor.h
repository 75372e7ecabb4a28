// Adafactor on one f32 array. The operator (runtime/ops/adafactor.cpp) defines the computation.
//
// Threads   uses the pool for larger arrays; the bits do not depend on the number of threads;
//           nothing is allocated.
#pragma once

#include <cstddef>

#include "threads.h"

namespace bowline::detail::cpu {

// `batch` contiguous matrices [rows, columns]. The second moments v are `row` [batch, rows] and
// `column` [batch, columns]. For a vector, batch and rows are 1, `row` is v, and `column` is null.
struct AdafactorShape {
  size_t batch = 1;
  size_t rows = 1;
  size_t columns = 0;
};
struct AdafactorStep {
  double learning_rate = 0;
  double least_rate = 0;  // 1 / sqrt(update)
  double beta = 0;        // weight of the new squares in v
  double eps = 0;
  double eps2 = 0;
  double d = 1;
  double weight_decay = 0;
  float grad_scale = 1;
};
// Multiplies the gradient by grad_scale first. Returns true if every new w is finite.
bool adafactor(Threads& threads, const AdafactorShape& shape, const AdafactorStep& step,
               const float* g, float* w, float* row, float* column, void* scratch);
size_t adafactor_scratch_bytes(size_t n);

}  // namespace bowline::detail::cpu
