// See update.h.
#include "compute/update.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "compute/elementwise.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/update.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

// The blocks return 0 times the sum of the new weights: NaN if one is not finite.
float adagrad_block(size_t n, const AdagradStep& s, const float* g, float* w, float* sums) {
  const FloatTag d;
  const FloatVector rate = hn::Set(d, s.learning_rate);
  const FloatVector eps = hn::Set(d, s.eps);
  const FloatVector decay = hn::Set(d, s.weight_decay);
  const FloatVector scale = hn::Set(d, s.grad_scale);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector wi = part.load(w + i);
    const FloatVector gi = hn::MulAdd(decay, wi, hn::Mul(part.load(g + i), scale));
    const FloatVector si = hn::MulAdd(gi, gi, part.load(sums + i));
    const FloatVector step = hn::Div(gi, hn::Add(hn::Sqrt(si), eps));
    const FloatVector next = hn::NegMulAdd(rate, step, wi);
    part.store(si, sums + i);
    part.store(next, w + i);
    return hn::Mul(next, hn::Zero(FloatTag()));
  });
}

float rms_prop_block(size_t n, const RmsPropStep& s, const float* g, float* w, float* v,
                     float* mean, float* b) {
  const FloatTag d;
  const FloatVector rate = hn::Set(d, s.learning_rate);
  const FloatVector alpha = hn::Set(d, s.alpha);
  const FloatVector rest = hn::Set(d, s.one_minus_alpha);
  const FloatVector momentum = hn::Set(d, s.momentum);
  const FloatVector eps = hn::Set(d, s.eps);
  const FloatVector decay = hn::Set(d, s.weight_decay);
  const FloatVector scale = hn::Set(d, s.grad_scale);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector wi = part.load(w + i);
    const FloatVector gi = hn::MulAdd(decay, wi, hn::Mul(part.load(g + i), scale));
    const FloatVector vi = hn::MulAdd(hn::Mul(rest, gi), gi, hn::Mul(alpha, part.load(v + i)));
    part.store(vi, v + i);
    FloatVector variance = vi;
    if (mean != nullptr) {
      const FloatVector mi = hn::MulAdd(rest, gi, hn::Mul(alpha, part.load(mean + i)));
      part.store(mi, mean + i);
      const FloatVector left = hn::NegMulAdd(mi, mi, vi);
      variance = hn::IfThenElse(hn::Lt(left, hn::Zero(FloatTag())), hn::Zero(FloatTag()), left);
    }
    FloatVector step = hn::Div(gi, hn::Add(hn::Sqrt(variance), eps));
    if (b != nullptr) {
      step = hn::MulAdd(momentum, part.load(b + i), step);
      part.store(step, b + i);
    }
    const FloatVector next = hn::NegMulAdd(rate, step, wi);
    part.store(next, w + i);
    return hn::Mul(next, hn::Zero(FloatTag()));
  });
}

float lion_block(size_t n, const LionStep& s, const float* g, float* w, float* m) {
  const FloatTag d;
  const FloatVector rate = hn::Set(d, s.learning_rate);
  const FloatVector keep = hn::Set(d, s.keep);
  const FloatVector beta1 = hn::Set(d, s.beta1);
  const FloatVector rest1 = hn::Set(d, s.one_minus_beta1);
  const FloatVector beta2 = hn::Set(d, s.beta2);
  const FloatVector rest2 = hn::Set(d, s.one_minus_beta2);
  const FloatVector scale = hn::Set(d, s.grad_scale);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector gi = hn::Mul(part.load(g + i), scale);
    const FloatVector mi = part.load(m + i);
    const FloatVector direction = hn::MulAdd(rest1, gi, hn::Mul(beta1, mi));
    const FloatVector zero = hn::Zero(FloatTag());
    // A direction that is not a number stays one.
    const FloatVector size =
        hn::IfThenElse(hn::IsNaN(direction), direction, hn::Set(FloatTag(), 1.0f));
    const FloatVector sign =
        hn::IfThenElse(hn::Eq(direction, zero), zero, hn::CopySign(size, direction));
    const FloatVector next = hn::NegMulAdd(rate, sign, hn::Mul(part.load(w + i), keep));
    part.store(hn::MulAdd(rest2, gi, hn::Mul(beta2, mi)), m + i);
    part.store(next, w + i);
    return hn::Mul(next, zero);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::detail::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

HWY_EXPORT(adagrad_block);
HWY_EXPORT(rms_prop_block);
HWY_EXPORT(lion_block);

constexpr size_t kBlock = 8192;

// Whether block(first, size), which is 0 where all is finite, is so for all blocks of 0 .. n - 1.
template <class F>
bool all_finite(Threads& threads, size_t n, F&& block) {
  std::atomic<bool> finite = true;
  threads.parallel_for((n + kBlock - 1) / kBlock, [&](size_t task, size_t) {
    const size_t first = task * kBlock;
    if (block(first, std::min(kBlock, n - first)) != 0) {
      finite = false;
    }
  });
  return finite;
}

float* at(float* list, size_t i) { return list == nullptr ? nullptr : list + i; }

double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

}  // namespace

bool adagrad(Threads& threads, size_t n, const AdagradStep& step, const float* g, float* w,
             float* s) {
  return all_finite(threads, n, [=, &step](size_t i, size_t size) {
    return HWY_DYNAMIC_DISPATCH(adagrad_block)(size, step, g + i, w + i, s + i);
  });
}

bool rms_prop(Threads& threads, size_t n, const RmsPropStep& step, const float* g, float* w,
              float* v, float* mean, float* b) {
  return all_finite(threads, n, [=, &step](size_t i, size_t size) {
    return HWY_DYNAMIC_DISPATCH(rms_prop_block)(size, step, g + i, w + i, v + i, at(mean, i),
                                                at(b, i));
  });
}

bool lion(Threads& threads, size_t n, const LionStep& step, const float* g, float* w, float* m) {
  return all_finite(threads, n, [=, &step](size_t i, size_t size) {
    return HWY_DYNAMIC_DISPATCH(lion_block)(size, step, g + i, w + i, m + i);
  });
}

// The update of all elements lies in the scratch before w is changed: its size is not known
// earlier.
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
    constexpr size_t kColumns = 64;  // of a task
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
#endif  // HWY_ONCE
