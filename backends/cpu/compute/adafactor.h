// Adafactor on one f32 array; what it computes stands at its operator (runtime/ops/adafactor.cpp).
//
// Threads   uses the pool for larger arrays; the bits do not depend on the number of threads;
//           nothing is allocated.
#pragma once

#include <cstddef>

#include "threads.h"

namespace bowline::detail::cpu {

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
// The gradient is first multiplied by grad_scale. Returns whether every new w is finite.
bool adafactor(Threads& threads, const AdafactorShape& shape, const AdafactorStep& step,
               const float* g, float* w, float* row, float* column, void* scratch);
size_t adafactor_scratch_bytes(size_t n);

}  // namespace bowline::detail::cpu
