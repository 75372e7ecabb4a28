// See adafactor.h.
#include "compute/adafactor.h"

#include <algorithm>
#include <cmath>

#include "compute/elementwise.h"
#include "compute/update.h"

namespace bowline::detail::cpu {
namespace {

double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

}  // namespace

// The scratch memory holds the update u of all elements, because w changes only after rms(u) is
// known.
size_t adafactor_scratch_bytes(size_t n) {
  return n * sizeof(float) + 64 + sum_of_squares_scratch_bytes(n);
}

bool adafactor(Threads& threads, const AdafactorShape& shape, const AdafactorStep& step,
               const float* g, float* w, float* row, float* column, void* scratch) {
  const size_t batch = shape.batch;
  const size_t rows = shape.rows;
  const size_t columns = shape.columns;
  const size_t n = batch * rows * columns;
  auto* const sums = static_cast<std::byte*>(scratch);
  auto* const u = reinterpret_cast<float*>(sums + (sum_of_squares_scratch_bytes(n) + 63) / 64 * 64);
  const auto rms = [&](const float* x) {
    return std::sqrt(sum_of_squares(threads, n, x, sums) / static_cast<double>(n));
  };
  const double scale = static_cast<double>(step.grad_scale);
  const double alpha = std::max(step.eps2, rms(w)) * std::min(step.learning_rate, step.least_rate);
  const double keep = 1 - step.beta;
  const double least = step.eps * step.eps;
  const auto mixed = [&](float before, double squares, size_t count) {
    return static_cast<float>(keep * static_cast<double>(before) +
                              step.beta * squares * scale * scale / static_cast<double>(count));
  };
  if (column == nullptr) {
    for (size_t i = 0; i < n; ++i) {
      row[i] = mixed(row[i], square(g[i]), 1);
      u[i] = static_cast<float>(static_cast<double>(g[i]) * scale /
                                std::sqrt(std::max(static_cast<double>(row[i]), least)));
    }
  } else {
    threads.parallel_for(batch * rows, [&](size_t r, size_t) {
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) {
        sum += square(g[r * columns + c]);
      }
      row[r] = mixed(row[r], sum, columns);
    });
    constexpr size_t kColumns = 64;  // columns per task
    const size_t tasks = (columns + kColumns - 1) / kColumns;
    threads.parallel_for(batch * tasks, [&](size_t task, size_t) {
      const size_t b = task / tasks;
      const size_t first = task % tasks * kColumns;
      const size_t count = std::min(kColumns, columns - first);
      double part[kColumns] = {};
      for (size_t r = 0; r < rows; ++r) {
        const float* const from = g + (b * rows + r) * columns + first;
        for (size_t c = 0; c < count; ++c) {
          part[c] += square(from[c]);
        }
      }
      for (size_t c = 0; c < count; ++c) {
        float& to = column[b * columns + first + c];
        to = mixed(to, part[c], rows);
      }
    });
    for (size_t b = 0; b < batch; ++b) {
      double sum = 0;
      for (size_t r = 0; r < rows; ++r) {
        sum += static_cast<double>(row[b * rows + r]);
      }
      const double mean = std::max(sum / static_cast<double>(rows), step.eps);
      threads.parallel_for(rows, [&](size_t r, size_t) {
        const size_t first = (b * rows + r) * columns;
        const double factor = static_cast<double>(row[b * rows + r]) / mean;
        for (size_t c = 0; c < columns; ++c) {
          const double v = factor * static_cast<double>(column[b * columns + c]);
          u[first + c] = static_cast<float>(static_cast<double>(g[first + c]) * scale /
                                            std::sqrt(std::max(v, least)));
        }
      });
    }
  }
  const auto factor = static_cast<float>(alpha / std::max(1.0, rms(u) / step.d));
  const auto decay = static_cast<float>(1 - step.learning_rate * step.weight_decay);
  return all_finite(threads, n, [=](size_t first, size_t size) {
    float finite = 0;
    for (size_t i = first; i < first + size; ++i) {
      w[i] = w[i] * decay - factor * u[i];
      finite += w[i] * 0.0f;
    }
    return finite;
  });
}

}  // namespace bowline::detail::cpu
