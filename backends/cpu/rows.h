// Loops over tensors whose operands have their own strides: rows of the last axis.
#pragma once

#include <array>

#include "core/strides.h"
#include "kernel.h"

namespace bowline::detail::cpu {

// Calls f(row, at) for every row of `out`, which has out.back() elements (1 if the rank is 0).
// at[k] is the position of the row in operand k, in elements. Threads share the rows, with about
// `grain` elements per task.
template <size_t N, class F>
void for_rows(Threads& threads, const Shape& out, const std::array<Strides, N>& strides,
              int64_t grain, F&& f) {
  if (out.elements() == 0) {
    return;
  }
  const int last = out.rank() - 1;
  const int64_t n = out.rank() == 0 ? 1 : out.back();
  parallel_blocks(threads, out.elements() / n, std::max<int64_t>(1, grain / n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      std::array<int64_t, N> at{};
                      int64_t rest = row;
                      for (int a = last - 1; a >= 0; --a) {
                        for (size_t k = 0; k < N; ++k) {
                          at[k] += rest % out[a] * strides[k][static_cast<size_t>(a)];
                        }
                        rest /= out[a];
                      }
                      f(row, at);
                    }
                  });
}

// Stride of an operand within a row.
inline int64_t row_step(const Shape& out, const Strides& strides) {
  return out.rank() == 0 ? 0 : strides[static_cast<size_t>(out.rank() - 1)];
}

}  // namespace bowline::detail::cpu
