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
  void (*forward)(size_t rows, size_t n, const T* x, const T* gamma, const T* beta, float eps,
                  T* y);
  void (*backward)(size_t rows, size_t n, const T* x, const T* gamma, const T* dy, float eps, T* dx,
                   float* dgamma, float* dbeta);
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// LayerNorm, or without kLayer RmsNorm: it has no mean and no beta.
template <bool kLayer>
struct Normalizer {
  template <class T>
  Normalizer(size_t n, const T* x, float eps) {
    const FloatTag d;
    const float count = static_cast<float>(n);
    if constexpr (kLayer) {
      const auto load = [=](size_t i, auto part) HWY_ATTR { return part.load(x + i); };
      mean = hn::Set(d, sum_vectors(n, load) / count);
    }
    const FloatVector m = mean;
    const float squares = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector c = kLayer ? hn::Sub(part.load(x + i), m) : part.load(x + i);
      return hn::Mul(c, c);
    });
    r = hn::Set(d, 1.0f / std::sqrt(squares / count + eps));
  }
  HWY_INLINE FloatVector operator()(FloatVector x) const {
    return hn::Mul(kLayer ? hn::Sub(x, mean) : x, r);
  }
  FloatVector mean = hn::Zero(FloatTag());
  FloatVector r;
};

template <bool kLayer, class T>
void norm_forward(size_t rows, size_t n, const T* x, const T* gamma, const T* beta, float eps,
                  T* y) {
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    const Normalizer<kLayer> normalized(n, x, eps);
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector h = normalized(part.load(x + i)), g = part.load(gamma + i);
      part.store(kLayer ? hn::MulAdd(h, g, part.load(beta + i)) : hn::Mul(h, g), y + i);
    });
  }
}

template <bool kLayer, class T>
void norm_backward(size_t rows, size_t n, const T* x, const T* gamma, const T* dy, float eps, T* dx,
                   float* dgamma, float* dbeta) {
  const FloatTag d;
  const float count = static_cast<float>(n);
  std::fill_n(dgamma, n, 0.0f);
  std::fill_n(dbeta, kLayer ? n : 0, 0.0f);
  for (size_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const Normalizer<kLayer> normalized(n, x, eps);
    const auto g_at = [=](size_t i, auto part)
                          HWY_ATTR { return hn::Mul(part.load(dy + i), part.load(gamma + i)); };
    const FloatVector mean_g = hn::Set(d, kLayer ? sum_vectors(n, g_at) / count : 0.0f);
    const float sum_gh = sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector h = normalized(part.load(x + i));
      return hn::Mul(g_at(i, part), h);
    });
    const FloatVector mean_gh = hn::Set(d, sum_gh / count);
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      const FloatVector dyi = part.load(dy + i);
      const FloatVector h = normalized(part.load(x + i));
      const FloatVector g = hn::Mul(dyi, part.load(gamma + i));
      part.store(hn::MulAdd(dyi, h, part.load(dgamma + i)), dgamma + i);
      if constexpr (kLayer) {
        part.store(hn::Add(dyi, part.load(dbeta + i)), dbeta + i);
      }
      const FloatVector apart = kLayer ? hn::Sub(g, mean_g) : g;
      part.store(hn::Mul(normalized.r, hn::NegMulAdd(h, mean_gh, apart)), dx + i);
    });
  }
}

template <class T>
NormRows<T> norm_rows(bool layer) {
  return layer ? NormRows<T>{norm_forward<true, T>, norm_backward<true, T>}
               : NormRows<T>{norm_forward<false, T>, norm_backward<false, T>};
}
NormRows<float> norm_rows_f32(bool layer) { return norm_rows<float>(layer); }
NormRows<f16> norm_rows_f16(bool layer) { return norm_rows<f16>(layer); }
NormRows<bf16> norm_rows_bf16(bool layer) { return norm_rows<bf16>(layer); }

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
void norm(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma, const T* beta,
          float eps, T* y) {
  const NormRows<T> norms = BOWLINE_BEST_FOR(T, norm_rows)(beta != nullptr);
  for_rows(threads, rows, n, [=](size_t row, size_t count) {
    norms.forward(count, n, x + row * n, gamma, beta, eps, y + row * n);
  });
}

template <class T>
void norm_backward(Threads& threads, size_t rows, size_t n, const T* x, const T* gamma, const T* dy,
                   float eps, T* dx, T* dgamma, T* dbeta, void* scratch) {
  const NormRows<T> norms = BOWLINE_BEST_FOR(T, norm_rows)(dbeta != nullptr);
  float* const partial = static_cast<float*>(scratch);
  const size_t blocks = blocks_of(rows);
  threads.parallel_for(blocks, [=](size_t block, size_t) {
    const size_t row = block * block_rows(rows), at = row * n;
    float* const sums = partial + block * 2 * n;
    norms.backward(std::min(block_rows(rows), rows - row), n, x + at, gamma, dy + at, eps, dx + at,
                   sums, sums + n);
  });
  add_blocks(blocks, n, 2 * n, partial, dgamma);
  if (dbeta != nullptr) {
    add_blocks(blocks, n, 2 * n, partial + n, dbeta);
  }
}

#define BOWLINE_NORMS(T)                                                                         \
  template void norm(Threads&, size_t, size_t, const T*, const T*, const T*, float, T*);         \
  template void norm_backward(Threads&, size_t, size_t, const T*, const T*, const T*, float, T*, \
                              T*, T*, void*)
BOWLINE_NORMS(float);
BOWLINE_NORMS(f16);
BOWLINE_NORMS(bf16);
#undef BOWLINE_NORMS

size_t norm_backward_scratch_bytes(size_t rows, size_t n) {
  return blocks_of(rows) * 2 * n * sizeof(float);
}

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

void cross_entropy_backward(Threads& threads, size_t rows, size_t n, const float* logits,
                            const int32_t* labels, int32_t ignore_index, const RowFactor& factor,
                            float smoothing, float* dlogits) {
  for_rows(threads, rows, n, [=, &factor](size_t row, size_t count) {
    const RowFactor part{factor.all, factor.each == nullptr ? nullptr : factor.each + row};
    BOWLINE_BEST(cross_entropy_backward_rows)
    (count, n, logits + row * n, labels + row, ignore_index, part, smoothing, dlogits + row * n);
  });
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
