// Blocks of scores of attention, and their operands, for both passes.
#if defined(BOWLINE_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_ATTENTION_INL_H
#undef BOWLINE_CPU_ATTENTION_INL_H
#else
#define BOWLINE_CPU_ATTENTION_INL_H
#endif

#include <limits>

#include "compute/attention_blocks.h"
#include "compute/gemm-inl.h"
#include "compute/math-inl.h"
#include "compute/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Number of lanes for `queries`, in whole vectors.
inline size_t lanes_for(size_t queries) {
  const size_t lanes = hn::Lanes(FloatTag());
  return (queries + lanes - 1) / lanes * lanes;
}

inline void scale_all(size_t rows, size_t width, float factor, float* x) {
  const FloatTag d;
  const FloatVector f = hn::Set(d, factor);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < width; i += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + r * kBlock + i), f), d, x + r * kBlock + i);
    }
  }
}

// A block of scores: `keys` keys from key0 on and `queries` queries from query0 on, in `width`
// lanes.
struct Scores {
  size_t batch;
  size_t head;
  size_t key0;
  size_t keys;
  size_t query0;
  size_t queries;
  size_t width;
};

// The NaN score of a hidden key also becomes -inf.
inline void hide(const AttentionMask& m, const Scores& b, float* st) {
  const float hidden = -std::numeric_limits<float>::infinity();
  for (size_t j = 0; j < b.keys; ++j, st += kBlock) {
    const size_t key = b.key0 + j;
    if (m.shown != nullptr && m.shown[b.batch * m.row + key] == 0) {
      std::fill_n(st, b.width, hidden);
    }
    if (m.added != nullptr) {
      const float* added =
          m.added + b.batch * m.batch + b.head * m.head + b.query0 * m.query + key * m.key;
      for (size_t i = 0; i < b.queries; ++i, added += m.query) {
        st[i] = *added == hidden ? hidden : st[i] + *added;
      }
    }
  }
}

// Applies soft-capping: score = softcap * tanh(score / softcap). Writes the derivatives 1 - tanh^2
// to `slopes` if it is not null.
inline void cap_scores(size_t keys, size_t width, float softcap, float* st, float* slopes) {
  const FloatTag d;
  const FloatVector cap = hn::Set(d, softcap);
  for (size_t j = 0; j < keys; ++j) {
    for (size_t i = 0; i < width; i += hn::Lanes(d)) {
      const size_t at = j * kBlock + i;
      const FloatVector part = tanh(d, hn::Div(hn::LoadU(d, st + at), cap));
      hn::StoreU(hn::Mul(part, cap), d, st + at);
      if (slopes != nullptr) {
        hn::StoreU(hn::NegMulAdd(part, part, hn::Set(d, 1.0f)), d, slopes + at);
      }
    }
  }
}

// Computes scores; -inf if the query does not see the key. With soft-capping, also computes the
// derivatives if `slopes` is not null.
inline void scores(const AttentionShape& s, const float* k, size_t k_row, const float* qt,
                   const Scores& b, float* st, float* slopes) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const auto [batch, head, key0, keys, query0, queries, width] = b;
  multiply_block({k, k_row, 1, qt, kBlock, st, kBlock}, keys, s.dim, width, false);
  if (s.softcap != 0) {
    cap_scores(keys, width, s.softcap, st, slopes);
  }
  for (size_t j = 0; j < keys; ++j) {
    const size_t first = first_query(s, key0 + j);
    if (first > query0) {
      std::fill_n(st + j * kBlock, std::min(width, first - query0), kHidden);
    }
    const size_t end = std::max(end_of_queries(s, key0 + j), query0);
    if (s.window != 0 && end < query0 + width) {
      std::fill(st + j * kBlock + (end - query0), st + j * kBlock + width, kHidden);
    }
  }
  hide(s.mask, b, st);
}

inline bool all_finite(const float* x, size_t row, size_t rows, size_t dim) {
  const FloatTag d;
  for (size_t r = 0; r < rows; ++r, x += row) {
    // The sum of x * 0 is 0 only if all values are finite.
    const float sum = sum_vectors(
        dim, [=](size_t i, auto part) HWY_ATTR { return hn::Mul(part.load(x + i), hn::Zero(d)); });
    if (sum != 0) {
      return false;
    }
  }
  return true;
}

// True if a row contains NaN or infinity. A product of weights and rows would then spread hidden
// values, because 0 times such a value is NaN.
inline bool spreads(const AttentionShape& s, const float* x, size_t row, size_t rows) {
  return s.mask.any() && !all_finite(x, row, rows, s.dim);
}

// sums_t [dim][kBlock] += rows x [keys] times weights [keys][kBlock], by query, without weights of
// 0.
inline void add_shown_keys(const Scores& b, size_t dim, const float* x, size_t row,
                           const float* weights, float* sums_t) {
  for (size_t j = 0; j < b.keys; ++j, x += row, weights += kBlock) {
    for (size_t i = 0; i < b.queries; ++i) {
      for (size_t c = 0; c < dim && weights[i] != 0; ++c) {
        sums_t[c * kBlock + i] += weights[i] * x[c];
      }
    }
  }
}

template <class T>
struct Rows {
  const T* data;
  size_t row;                     // elements from one row to the next
  const float* scales = nullptr;  // (optional) a factor per row
};
// The rows of a block in f32, either in place or converted into `scratch`.
using BlockRows = Rows<float>;

template <class T>
BlockRows block_rows(const T* x, size_t row, size_t rows, size_t dim,
                     [[maybe_unused]] float* scratch) {
  if constexpr (kWide<T>) {
    return {x, row};
  } else {
    for (size_t r = 0; r < rows; ++r) {
      const T* from = x + r * row;
      float* to = scratch + r * dim;
      for_vectors(dim,
                  [=](size_t i, auto part) HWY_ATTR { part.store(part.load(from + i), to + i); });
    }
    return {scratch, dim};
  }
}

// Transposes the columns of xt [dim][kBlock] to rows.
template <class T>
void store_rows(const float* xt, size_t rows, size_t dim, T* out, size_t out_row,
                [[maybe_unused]] float* scratch) {
  if constexpr (kWide<T>) {
    transpose(xt, kBlock, dim, rows, out, out_row, dim);
  } else {
    transpose(xt, kBlock, dim, rows, scratch, dim, dim);
    for (size_t r = 0; r < rows; ++r) {
      const float* from = scratch + r * dim;
      T* to = out + r * out_row;
      for_vectors(dim,
                  [=](size_t i, auto part) HWY_ATTR { part.store(part.load(from + i), to + i); });
    }
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
