// Operators on f32 arrays element by element, and the sum of squares.
//
// Shapes    arrays of n contiguous elements; an output may be the same array as an input.
// Numerics  NaN and infinities propagate; denormals are kept. The bits do not depend on the number
//           of threads.
// Threads   uses the pool for arrays of more than 8192 elements; nothing is allocated.
#pragma once

#include <cstddef>

#include "generated/functions.h"
#include "threads.h"

namespace bowline::detail::cpu {

// An operand of a row: its step is 1, or 0 if one value is used for all elements.
template <class T>
struct RowOf {
  T* data = nullptr;
  size_t step = 1;
};

// The operands of a function. Unused operands may point to any readable memory. The third operand
// has step 1.
template <class T>
struct Operands {
  RowOf<const T> a;
  RowOf<const T> b;
  const T* c = nullptr;

  // From element i on.
  Operands at(size_t i) const {
    return {{a.data + i * a.step, a.step}, {b.data + i * b.step, b.step}, c == nullptr ? c : c + i};
  }
};

// y = f(a), f(a, b) or f(a, b, c); a comparison returns 0 or 1. All operands have step 1.
void elementwise(Threads& threads, const FunctionCall& f, size_t n, const Operands<float>& in,
                 float* y);

// The same for a row that is small enough for one task.
void elementwise_row(const FunctionCall& f, size_t n, const Operands<float>& in, float* y);

// Sum of x^2 in f64, over blocks of a fixed size in ascending order.
size_t sum_of_squares_scratch_bytes(size_t n);
double sum_of_squares(Threads& threads, size_t n, const float* x, void* scratch);

}  // namespace bowline::detail::cpu
