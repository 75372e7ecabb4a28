// See row.h.
#include "compute/row.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

#include "compute/convert.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/row.cpp"
#include "hwy/foreach_target.h"
#include "compute/math-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ROW_ONCE
#define BOWLINE_CPU_ROW_ONCE
namespace bowline::detail::cpu {
namespace {

// Number of elements that are worth a task.
constexpr size_t kTaskElements = 8192;
// Maximum number of row blocks of a sum over rows.
constexpr size_t kMaxBlocks = 32;
constexpr size_t kMinBlockRows = 8;

// Norms of rows of T. dgamma and dbeta receive the sums over these rows.
template <class T>
struct NormRows {
  void (*layer)(size_t rows, size_t n, const T* x, const T* gamma, const T* beta, float eps, T* y);
  void (*layer_backward)(size_t rows, size_t n, const T* x, const T* gamma, const T* dy, float eps,
                         T* dx, float* dgamma, float* dbeta);
  void (*rms)(size_t rows, size_t n, const T* x, const T* gamma, float eps, T* y);
  void (*rms_backward)(size_t rows, size_t n, const T* x, const T* gamma, const T* dy, float eps,
                       T* dx, float* dgamma);
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

struct NormStatistics {
  float mean;
  float r;
};

template <class T>
NormStatistics layer_norm_statistics(size_t n, const T* x, float eps) {
  const FloatTag d;
  const float count = static_cast<float>(n);
  const float mean =
      sum_vectors(n, [=](size_t i, auto part) HWY_ATTR { return part.load(x + i); }) / count;
  const FloatVector m = hn::Set(d, mean);
  const float squares = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector c = hn::Sub(part.load(x + i), m);
    return hn::Mul(c, c);
  });
  return {mean, 1.0f / std::sqrt(squares / count + eps)};
}

template <class T>
float rms_norm_r(size_t n, const T* x, float eps) {
  const float squares = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector v = part.load(x + i);
    return hn::Mul(v, v);
  });
  return 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
}

template <class T>
void layer_norm_rows(size_t rows, size_t n, const T* x, const T* gamma, const T* beta, float eps,
                     T* y) {
  const FloatTag d;
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const NormStatistics s = layer_norm_statistics(n, x, eps);
    const FloatVector mean = hn::Set(d, s.mean);
    const FloatVector r = hn::Set(d, s.r);
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector h = hn::Mul(hn::Sub(part.load(x + i), mean), r);
      part.store(hn::MulAdd(h, part.load(gamma + i), part.load(beta + i)), y + i);
    });
  }
}

template <class T>
void rms_norm_rows(size_t rows, size_t n, const T* x, const T* gamma, float eps, T* y) {
  const FloatTag d;
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const FloatVector r = hn::Set(d, rms_norm_r(n, x, eps));
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(hn::Mul(hn::Mul(part.load(x + i), r), part.load(gamma + i)), y + i);
    });
  }
}

template <class T>
void layer_norm_backward_rows(size_t rows, size_t n, const T* x, const T* gamma, const T* dy,
                              float eps, T* dx, float* dgamma, float* dbeta) {
  const FloatTag d;
  const float count = static_cast<float>(n);
  std::fill(dgamma, dgamma + n, 0.0f);
  std::fill(dbeta, dbeta + n, 0.0f);
  for (size_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const NormStatistics s = layer_norm_statistics(n, x, eps);
    const FloatVector mean = hn::Set(d, s.mean);
    const FloatVector r = hn::Set(d, s.r);
    const float sum_g = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      return hn::Mul(part.load(dy + i), part.load(gamma + i));
    });
    const float sum_gh = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector h = hn::Mul(hn::Sub(part.load(x + i), mean), r);
      return hn::Mul(hn::Mul(part.load(dy + i), part.load(gamma + i)), h);
    });
    const FloatVector mean_g = hn::Set(d, sum_g / count);
    const FloatVector mean_gh = hn::Set(d, sum_gh / count);
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector dyi = part.load(dy + i);
      const FloatVector h = hn::Mul(hn::Sub(part.load(x + i), mean), r);
      const FloatVector g = hn::Mul(dyi, part.load(gamma + i));
      part.store(hn::MulAdd(dyi, h, part.load(dgamma + i)), dgamma + i);
      part.store(hn::Add(dyi, part.load(dbeta + i)), dbeta + i);
      part.store(hn::Mul(r, hn::NegMulAdd(h, mean_gh, hn::Sub(g, mean_g))), dx + i);
    });
  }
}

template <class T>
void rms_norm_backward_rows(size_t rows, size_t n, const T* x, const T* gamma, const T* dy,
                            float eps, T* dx, float* dgamma) {
  const FloatTag d;
  std::fill(dgamma, dgamma + n, 0.0f);
  for (size_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const FloatVector r = hn::Set(d, rms_norm_r(n, x, eps));
    const float sum_gh = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector h = hn::Mul(part.load(x + i), r);
      return hn::Mul(hn::Mul(part.load(dy + i), part.load(gamma + i)), h);
    });
    const FloatVector mean_gh = hn::Set(d, sum_gh / static_cast<float>(n));
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector dyi = part.load(dy + i);
      const FloatVector h = hn::Mul(part.load(x + i), r);
      const FloatVector g = hn::Mul(dyi, part.load(gamma + i));
      part.store(hn::MulAdd(dyi, h, part.load(dgamma + i)), dgamma + i);
      part.store(hn::Mul(r, hn::NegMulAdd(h, mean_gh, g)), dx + i);
    });
  }
}

template <class T>
NormRows<T> norm_rows() {
  return {layer_norm_rows<T>, layer_norm_backward_rows<T>, rms_norm_rows<T>,
          rms_norm_backward_rows<T>};
}
NormRows<float> norm_rows_f32() { return norm_rows<float>(); }
NormRows<f16> norm_rows_f16() { return norm_rows<f16>(); }
NormRows<bf16> norm_rows_bf16() { return norm_rows<bf16>(); }

// y = first row, or y + row: the order of a sum over rows.
void add_rows(size_t rows, size_t n, size_t stride, const float* x, bool accumulate, float* y) {
  if (!accumulate) {
    std::fill(y, y + n, 0.0f);
  }
  for (size_t row = 0; row < rows; ++row, x += stride) {
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(hn::Add(part.load(y + i), part.load(x + i)), y + i);
    });
  }
}

float max_of_row(size_t n, const float* x) {
  const FloatTag d;
  const FloatVector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVector max = lowest;
  for_vectors(n, [x, lowest, &max](size_t i, auto part)
                     HWY_ATTR { max = hn::Max(part.or_else(part.load(x + i), lowest), max); });
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// Sum of e^(x - max). Writes the terms to y if it is not null.
template <bool kWrite>
float exp_row(size_t n, const float* x, float max, float* y) {
  const FloatTag d;
  const FloatVector m = hn::Set(d, max);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector e = exp_below_zero(d, hn::Sub(part.load(x + i), m));
    if constexpr (kWrite) {
      part.store(e, y + i);
    }
    return e;
  });
}

void scale_row(size_t n, float factor, float* y) {
  const FloatVector f = hn::Set(FloatTag(), factor);
  for_vectors(
      n, [=](size_t i, auto part) HWY_ATTR { part.store(hn::Mul(part.load(y + i), f), y + i); });
}

void softmax_rows(size_t rows, size_t n, const float* x, float* y) {
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const float sum = exp_row<true>(n, x, max_of_row(n, x), y);
    scale_row(n, 1.0f / sum, y);
  }
}

void softmax_backward_rows(size_t rows, size_t n, const float* y, const float* dy, float* dx) {
  for (size_t row = 0; row < rows; ++row, y += n, dy += n, dx += n) {
    const float sum = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      return hn::Mul(part.load(y + i), part.load(dy + i));
    });
    const FloatVector s = hn::Set(FloatTag(), sum);
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(hn::Mul(part.load(y + i), hn::Sub(part.load(dy + i), s)), dx + i);
    });
  }
}

void log_softmax_rows(size_t rows, size_t n, const float* x, float* y) {
  const FloatTag d;
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const float max = max_of_row(n, x);
    const FloatVector m = hn::Set(d, max);
    const FloatVector log_sum = hn::Set(d, std::log(exp_row<false>(n, x, max, nullptr)));
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(hn::Sub(hn::Sub(part.load(x + i), m), log_sum), y + i);
    });
  }
}

void log_softmax_backward_rows(size_t rows, size_t n, const float* y, const float* dy, float* dx) {
  const FloatTag d;
  for (size_t row = 0; row < rows; ++row, y += n, dy += n, dx += n) {
    const FloatVector sum =
        hn::Set(d, sum_vectors(n, [=](size_t i, auto part) HWY_ATTR { return part.load(dy + i); }));
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector probability = exp(d, part.load(y + i));
      part.store(hn::NegMulAdd(probability, sum, part.load(dy + i)), dx + i);
    });
  }
}

bool row_has_nan(size_t n, const float* x) {
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) {
      return true;
    }
  }
  return false;
}

void log_sum_exp_rows(size_t rows, size_t n, const float* x, float* y) {
  for (size_t row = 0; row < rows; ++row, x += n) {
    const float max = max_of_row(n, x);
    const float sum = exp_row<false>(n, x, max, nullptr);
    // An infinite maximum is the result; its difference to itself would be NaN.
    const bool infinite = std::isinf(max) && !row_has_nan(n, x);
    y[row] = infinite ? max : max + std::log(sum);
  }
}

void cross_entropy_rows(size_t rows, size_t n, const float* logits, const int32_t* labels,
                        int32_t ignore_index, float* loss) {
  for (size_t row = 0; row < rows; ++row, logits += n) {
    if (labels[row] == ignore_index) {
      loss[row] = 0;
      continue;
    }
    const float max = max_of_row(n, logits);
    const float log_sum = std::log(exp_row<false>(n, logits, max, nullptr));
    loss[row] = log_sum - (logits[labels[row]] - max);
  }
}

void cross_entropy_backward_rows(size_t rows, size_t n, const float* logits, const int32_t* labels,
                                 int32_t ignore_index, const RowFactor& by, float smoothing,
                                 float* dlogits) {
  for (size_t row = 0; row < rows; ++row, logits += n, dlogits += n) {
    if (labels[row] == ignore_index) {
      std::fill(dlogits, dlogits + n, 0.0f);
      continue;
    }
    const float factor = by.each == nullptr ? by.all : by.each[row];
    const float sum = exp_row<true>(n, logits, max_of_row(n, logits), dlogits);
    scale_row(n, factor / sum, dlogits);
    if (smoothing != 0) {
      const FloatVector share = hn::Set(FloatTag(), factor * (smoothing / static_cast<float>(n)));
      for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
        part.store(hn::Sub(part.load(dlogits + i), share), dlogits + i);
      });
    }
    dlogits[labels[row]] -= factor * (1 - smoothing);
  }
}

float row_sum(size_t n, const float* x) {
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR { return part.load(x + i); });
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

// Calls f(first row, number of rows) for any division, because rows are independent.
template <class F>
void for_rows(Threads& threads, size_t rows, size_t n, F&& f) {
  const size_t unit = std::max<size_t>(1, kTaskElements / std::max<size_t>(1, n));
  threads.parallel_for((rows + unit - 1) / unit, [&](size_t task, size_t) {
    f(task * unit, std::min(unit, rows - task * unit));
  });
}

// Rows per block of a sum over rows. It decides the order of the sum, so it depends only on the
// number of rows.
constexpr size_t block_rows(size_t rows) {
  return std::max(kMinBlockRows, (rows + kMaxBlocks - 1) / kMaxBlocks);
}
constexpr size_t blocks_of(size_t rows) { return (rows + block_rows(rows) - 1) / block_rows(rows); }

// Calls f(block, first row, number of rows).
template <class F>
void for_row_blocks(Threads& threads, size_t rows, F&& f) {
  threads.parallel_for(blocks_of(rows), [&](size_t block, size_t) {
    const size_t first = block * block_rows(rows);
    f(block, first, std::min(block_rows(rows), rows - first));
  });
}

template <class T>
NormRows<T> norms_of() {
  return BOWLINE_BEST_FOR(T, norm_rows)();
}

// y = the sum of `blocks` rows of x. For 16-bit dtypes, the first row accumulates the sum, which is
// then rounded.
template <class T>
void add_blocks(size_t blocks, size_t n, size_t stride, float* x, T* y) {
  if constexpr (std::same_as<T, float>) {
    BOWLINE_BEST(add_rows)(blocks, n, stride, x, false, y);
  } else if (blocks == 0) {
    std::fill(y, y + n, T{});
  } else {
    BOWLINE_BEST(add_rows)(blocks - 1, n, stride, x + stride, true, x);
    narrow(n, x, y);
  }
}

}  // namespace

template <class T>
void layer_norm(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma, const T* beta,
                float eps, T* y) {
  const NormRows<T> norms = norms_of<T>();
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    norms.layer(count, n, x + row * n, gamma, beta, eps, y + row * n);
  });
}

template <class T>
void layer_norm_backward(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma,
                         const T* dy, float eps, T* dx, T* dgamma, T* dbeta, void* scratch) {
  const NormRows<T> norms = norms_of<T>();
  float* partial = static_cast<float*>(scratch);
  for_row_blocks(threads, rows, [=](size_t block, size_t row, size_t count) {
    float* sums = partial + block * 2 * n;
    norms.layer_backward(count, n, x + row * n, gamma, dy + row * n, eps, dx + row * n, sums,
                         sums + n);
  });
  const size_t blocks = blocks_of(rows);
  add_blocks(blocks, n, 2 * n, partial, dgamma);
  add_blocks(blocks, n, 2 * n, partial + n, dbeta);
}

template <class T>
void rms_norm(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma, float eps,
              T* y) {
  const NormRows<T> norms = norms_of<T>();
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    norms.rms(count, n, x + row * n, gamma, eps, y + row * n);
  });
}

template <class T>
void rms_norm_backward(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma,
                       const T* dy, float eps, T* dx, T* dgamma, void* scratch) {
  const NormRows<T> norms = norms_of<T>();
  float* partial = static_cast<float*>(scratch);
  for_row_blocks(threads, rows, [=](size_t block, size_t row, size_t count) {
    norms.rms_backward(count, n, x + row * n, gamma, dy + row * n, eps, dx + row * n,
                       partial + block * n);
  });
  add_blocks(blocks_of(rows), n, n, partial, dgamma);
}

#define BOWLINE_NORMS(T)                                                                           \
  template void layer_norm(Threads&, size_t, size_t, const T*, const T*, const T*, float, T*);     \
  template void layer_norm_backward(Threads&, size_t, size_t, const T*, const T*, const T*, float, \
                                    T*, T*, T*, void*);                                            \
  template void rms_norm(Threads&, size_t, size_t, const T*, const T*, float, T*);                 \
  template void rms_norm_backward(Threads&, size_t, size_t, const T*, const T*, const T*, float,   \
                                  T*, T*, void*)
BOWLINE_NORMS(float);
BOWLINE_NORMS(f16);
BOWLINE_NORMS(bf16);
#undef BOWLINE_NORMS

size_t norm_backward_scratch_bytes(size_t rows, size_t n) {
  return blocks_of(rows) * 2 * n * sizeof(float);
}

void sum_rows(Threads& threads, size_t rows, size_t n, const float* x, bool accumulate, float* y,
              void* scratch) {
  float* partial = static_cast<float*>(scratch);
  for_row_blocks(threads, rows, [=](size_t block, size_t row, size_t count) {
    BOWLINE_BEST(add_rows)(count, n, n, x + row * n, false, partial + block * n);
  });
  BOWLINE_BEST(add_rows)(blocks_of(rows), n, n, partial, accumulate, y);
}

size_t sum_rows_scratch_bytes(size_t rows, size_t n) { return blocks_of(rows) * n * sizeof(float); }

void softmax(Threads& threads, size_t rows, size_t n, const float* x, float* y) {
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    BOWLINE_BEST(softmax_rows)(count, n, x + row * n, y + row * n);
  });
}

void softmax_backward(Threads& threads, size_t rows, size_t n, const float* y, const float* dy,
                      float* dx) {
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    BOWLINE_BEST(softmax_backward_rows)(count, n, y + row * n, dy + row * n, dx + row * n);
  });
}

void log_softmax(Threads& threads, size_t rows, size_t n, const float* x, float* y) {
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    BOWLINE_BEST(log_softmax_rows)(count, n, x + row * n, y + row * n);
  });
}

void log_softmax_backward(Threads& threads, size_t rows, size_t n, const float* y, const float* dy,
                          float* dx) {
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    BOWLINE_BEST(log_softmax_backward_rows)(count, n, y + row * n, dy + row * n, dx + row * n);
  });
}

void log_sum_exp(Threads& threads, size_t rows, size_t n, const float* x, float* y) {
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    BOWLINE_BEST(log_sum_exp_rows)(count, n, x + row * n, y + row);
  });
}

LabelCheck check_labels(size_t rows, size_t n, const int32_t* labels, int32_t ignore_index) {
  LabelCheck check;
  for (size_t row = 0; row < rows; ++row) {
    if (labels[row] == ignore_index) {
      continue;
    }
    ++check.counted;
    if (labels[row] < 0 || static_cast<size_t>(labels[row]) >= n) {
      check.valid = false;
      check.bad_label = labels[row];
      break;
    }
  }
  return check;
}

void cross_entropy(Threads& threads, size_t rows, size_t n, const float* logits,
                   const int32_t* labels, int32_t ignore_index, float* loss) {
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    BOWLINE_BEST(cross_entropy_rows)
    (count, n, logits + row * n, labels + row, ignore_index, loss + row);
  });
}

void cross_entropy_backward(Threads& threads, size_t rows, size_t n, const float* logits,
                            const int32_t* labels, int32_t ignore_index, const RowFactor& factor,
                            float smoothing, float* dlogits) {
  for_rows(threads, rows, n, [=, &factor](size_t row, size_t count) {
    const RowFactor part{factor.all, factor.each == nullptr ? nullptr : factor.each + row};
    BOWLINE_BEST(cross_entropy_backward_rows)
    (count, n, logits + row * n, labels + row, ignore_index, part, smoothing, dlogits + row * n);
  });
}

float sum_of_row(size_t n, const float* x) { return BOWLINE_BEST(row_sum)(n, x); }

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
