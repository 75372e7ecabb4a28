// Blocks16::dots() of bf16, for a type that multiplies a few columns.
#pragma once

#include "base/float16.h"
#include "compute/gemm16_blocks.h"

namespace bowline::detail::cpu {

// Writes the element of C whose sum is `sum`.
inline void write_dot(const Job16& job, size_t row, size_t column, float sum) {
  const float out = job.bias == nullptr ? sum : sum + to_f32(bf16{job.bias[column]});
  job.c[row * job.shape.ldc + column] = from_f32<bf16>(out).bits;
  if (out != out) {
    job.nan->store(true, std::memory_order_relaxed);
  }
}

template <class Columns, size_t kRows>
void dots_of_rows(const Job16& job, Range columns) {
  size_t n = columns.begin;
  for (; n + 4 <= columns.end; n += 4) {
    Columns::template multiply<kRows, 4>(job, n);
  }
  for (; n < columns.end; ++n) {
    Columns::template multiply<kRows, 1>(job, n);
  }
}

// Columns::multiply<rows, columns>(job, n) computes columns n, n + 1, ... of all rows of C.
template <class Columns>
void dots_of_columns(const Job16& job, Range columns) {
  static constexpr void (*kDots[kFewRows])(const Job16&, Range) = {
      dots_of_rows<Columns, 1>, dots_of_rows<Columns, 2>, dots_of_rows<Columns, 3>,
      dots_of_rows<Columns, 4>, dots_of_rows<Columns, 5>, dots_of_rows<Columns, 6>};
  kDots[job.shape.m - 1](job, columns);
}

}  // namespace bowline::detail::cpu
