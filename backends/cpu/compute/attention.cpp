// See attention.h. Scores are stored transposed, [key][query], with the queries along the lanes. So
// q is the only transposed operand, once per block of queries, and maxima and sums over keys need
// no exchange between lanes.
#include "compute/attention.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

#include "compute/convert.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/codes-inl.h"
#include "compute/dots-inl.h"
#include "compute/gemm-inl.h"
#include "compute/math-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ATTENTION_ONCE
#define BOWLINE_CPU_ATTENTION_ONCE
namespace bowline::detail::cpu {
namespace {

// Number of queries and keys per block. The blocks of keys decide the order of the sums.
constexpr size_t kBlock = 64;
// Number of keys per chunk, if a head has a single query. Each chunk is summed separately; then the
// sums of the chunks are combined.
constexpr size_t kPiece = 2 * kBlock;
// Number of queries that share keys and values in registers.
constexpr size_t kTogether = 4;

template <class T>
struct ForwardJob {
  AttentionShape shape;
  AttentionInput<T> q;
  AttentionInput<T> k;
  AttentionInput<T> v;
  AttentionOutput<T> o;
  float* lse;
  size_t rows;  // of lse
};

// A task of the backward pass: its results and its blocks of keys.
struct BackwardTask {
  size_t batch;
  size_t head;
  size_t query_block;
  size_t key_block_begin;
  size_t key_block_end;
  bool dq;
  bool dkv;
  // Accumulators of dk and dv; their first position is `key_origin`.
  AttentionOutput<float> dk;
  AttentionOutput<float> dv;
  size_t key_origin;
};

constexpr size_t blocks_of(size_t n) { return (n + kBlock - 1) / kBlock; }

template <class T>
const T* at(const AttentionInput<T>& x, size_t batch, size_t head, size_t position) {
  return x.data + batch * x.strides.batch + head * x.strides.head + position * x.strides.position;
}

template <class T>
T* at(const AttentionOutput<T>& x, size_t batch, size_t head, size_t position) {
  return x.data + batch * x.strides.batch + head * x.strides.head + position * x.strides.position;
}

// Number of keys of a batch element that can be visible.
size_t keys_of(const AttentionShape& s, size_t batch) {
  if (s.mask.lengths == nullptr) {
    return s.keys;
  }
  return std::min(s.keys, static_cast<size_t>(std::max(s.mask.lengths[batch], 0)));
}

// Number of keys that query i sees unless a mask hides them.
size_t visible_keys(const AttentionShape& s, size_t batch, size_t i) {
  const size_t keys = keys_of(s, batch);
  if (!s.causal) {
    return keys;
  }
  const size_t limit = i + 1 + s.keys;
  return limit <= s.queries ? 0 : std::min(keys, limit - s.queries);
}

// The first visible key of query i, if any key is visible.
size_t first_key(const AttentionShape& s, size_t i) {
  const size_t end = i + 1 + s.keys;
  const size_t hidden = s.queries + s.window;
  return s.window == 0 || end <= hidden ? 0 : end - hidden;
}

// Sums of a query over the keys of a chunk: the maximum, the sum of e^(score - maximum), and the
// sum of e^(score - maximum) v [dim].
constexpr size_t sums_floats(size_t dim) { return dim + 2; }
constexpr size_t pieces_of(size_t keys) {
  return std::max<size_t>(1, (keys + kPiece - 1) / kPiece);
}

// True if each head has one query, all with the same visible keys. Keys are then processed in
// chunks.
bool is_row(const AttentionShape& s) { return s.queries == 1 && !s.mask.any(); }
size_t row_floats_of_pieces(const AttentionShape& s) {
  return s.batch * s.heads * pieces_of(s.keys) * sums_floats(s.dim);
}

// The first query that sees key j; at most `queries`.
size_t first_query(const AttentionShape& s, size_t j) {
  if (!s.causal || j + s.queries <= s.keys) {
    return 0;
  }
  return std::min(s.queries, j + s.queries - s.keys);
}

// One past the last query that sees key j; at most `queries`.
size_t end_of_queries(const AttentionShape& s, size_t j) {
  const size_t limit = j + s.queries + s.window;
  return s.window == 0 ? s.queries : limit <= s.keys ? 0 : std::min(s.queries, limit - s.keys);
}

// The size of a row of `dim` elements, padded to whole vectors.
constexpr size_t padded_dim(size_t dim) { return (dim + 15) / 16 * 16; }

template <class T>
constexpr bool kWide = std::same_as<T, float>;

// Number of floats that a converted block of 16-bit rows needs.
template <class T>
constexpr size_t row_floats(size_t dim) {
  return kWide<T> ? 0 : kBlock * dim;
}
template <class T>
size_t forward_floats(const AttentionShape& s) {
  const size_t rows = s.encoded ? kBlock * s.dim : row_floats<T>(s.dim);
  return kBlock * (2 * s.dim + kBlock + 2) + 2 * rows + 16;
}
template <class T>
size_t block_floats(const AttentionShape& s) {
  const size_t slopes = s.softcap == 0 ? 0 : kBlock;
  return kBlock * (3 * s.dim + 2 * padded_dim(s.dim) + 2 * kBlock + slopes + 2) +
         4 * row_floats<T>(s.dim);
}

template <class T>
struct AttentionBlocks {
  void (*forward)(const ForwardJob<T>& job, size_t batch, size_t head, size_t block,
                  float* scratch);
  // Processes all heads that share a key head. `sums` points to the sums of the first head; those
  // of the next head follow after `sums_head` floats.
  void (*piece)(const ForwardJob<T>& job, size_t batch, size_t kv_head, size_t first, size_t end,
                float* sums, size_t sums_head, float* scratch);
  void (*finish)(const ForwardJob<T>& job, size_t batch, size_t head, size_t pieces, float* sums);
  void (*backward)(const AttentionShape& s, const AttentionBackward<T>& x, const BackwardTask& task,
                   float* scratch);
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

// Number of lanes for `queries`, in whole vectors.
size_t lanes_for(size_t queries) {
  const size_t lanes = hn::Lanes(FloatTag());
  return (queries + lanes - 1) / lanes * lanes;
}

// x [rows][kBlock] *= factor [kBlock], lane by lane.
void scale_lanes(size_t rows, size_t width, const float* factor, float* x) {
  const FloatTag d;
  for (size_t i = 0; i < width; i += hn::Lanes(d)) {
    const FloatVector f = hn::LoadU(d, factor + i);
    for (size_t r = 0; r < rows; ++r) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + r * kBlock + i), f), d, x + r * kBlock + i);
    }
  }
}

void scale_all(size_t rows, size_t width, float factor, float* x) {
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
void hide(const AttentionMask& m, const Scores& b, float* st) {
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
void cap_scores(size_t keys, size_t width, float softcap, float* st, float* slopes) {
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
void scores(const AttentionShape& s, const float* k, size_t k_row, const float* qt, const Scores& b,
            float* st, float* slopes) {
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

bool all_finite(const float* x, size_t row, size_t rows, size_t dim) {
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
bool spreads(const AttentionShape& s, const float* x, size_t row, size_t rows) {
  return s.mask.any() && !all_finite(x, row, rows, s.dim);
}

// sums_t [dim][kBlock] += rows x [keys] times weights [keys][kBlock], by query, without weights of
// 0.
void add_shown_keys(const Scores& b, size_t dim, const float* x, size_t row, const float* weights,
                    float* sums_t) {
  for (size_t j = 0; j < b.keys; ++j, x += row, weights += kBlock) {
    for (size_t i = 0; i < b.queries; ++i) {
      for (size_t c = 0; c < dim && weights[i] != 0; ++c) {
        sums_t[c * kBlock + i] += weights[i] * x[c];
      }
    }
  }
}

// sums += rows x [queries] times weights [keys][kBlock], by key, without weights of 0.
void add_seeing_queries(const Scores& b, size_t dim, const float* x, size_t row,
                        const float* weights, float* sums, size_t sums_row) {
  for (size_t j = 0; j < b.keys; ++j, sums += sums_row, weights += kBlock) {
    for (size_t i = 0; i < b.queries; ++i) {
      for (size_t c = 0; c < dim && weights[i] != 0; ++c) {
        sums[c] += weights[i] * x[i * row + c];
      }
    }
  }
}

// Turns a block of scores into e^(score - maximum), and rescales the running maximum, the sum and
// the sums of v.
void online_softmax(size_t keys, size_t width, size_t dim, bool first, float* st, float* max,
                    float* sum, float* ot) {
  const FloatTag d;
  const FloatVector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < width; i += hn::Lanes(d)) {
    const FloatVector old_max = hn::LoadU(d, max + i);
    FloatVector new_max = old_max;
    for (size_t j = 0; j < keys; ++j) {
      new_max = hn::Max(hn::LoadU(d, st + j * kBlock + i), new_max);
    }
    // If a query has seen no key yet, any finite base is correct: e^(-inf - 0) = 0.
    const FloatVector base = hn::IfThenZeroElse(hn::Eq(new_max, lowest), new_max);
    FloatVector total = hn::Zero(d);
    for (size_t j = 0; j < keys; ++j) {
      const FloatVector e = exp_below_zero(d, hn::Sub(hn::LoadU(d, st + j * kBlock + i), base));
      hn::StoreU(e, d, st + j * kBlock + i);
      total = hn::Add(total, e);
    }
    const FloatVector correction = exp_below_zero(d, hn::Sub(old_max, base));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + i), correction, total), d, sum + i);
    hn::StoreU(new_max, d, max + i);
    for (size_t r = 0; r < dim && !first; ++r) {
      hn::StoreU(hn::Mul(hn::LoadU(d, ot + r * kBlock + i), correction), d, ot + r * kBlock + i);
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

// The same for keys or values, which may be quantized.
template <class T>
BlockRows block_rows(const AttentionInput<T>& x, size_t batch, size_t head, size_t first,
                     size_t rows, size_t dim, float* scratch) {
  const AttentionStrides& s = x.strides;
  if (x.codes == nullptr) {
    return block_rows(at(x, batch, head, first), s.position, rows, dim, scratch);
  }
  for (size_t r = 0; r < rows; ++r) {
    const size_t element = batch * s.batch + head * s.head + (first + r) * s.position;
    decode_run(*x.codes, element / dim, 0, dim, scratch + r * dim);
  }
  return {scratch, dim};
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

// Number of rows to prefetch. Rows are far apart, and hardware prefetchers stop at page boundaries.
constexpr size_t kRowsAhead = 32;

// p [kQueries][kBlock] = q [kQueries][dim] . rows of x, in groups of four rows. The last group
// repeats the last row.
template <size_t kQueries, class T>
void dots_with_rows(size_t rows, size_t dim, const float* HWY_RESTRICT q, const T* HWY_RESTRICT x,
                    size_t row, float* HWY_RESTRICT p) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t j = 0; j < rows; j += kDotColumns) {
    const T* four[kDotColumns];
    FloatVector sum[kQueries][kDotColumns];
    HWY_UNROLL(4)
    for (size_t c = 0; c < kDotColumns; ++c) {
      four[c] = x + HWY_MIN(j + c, rows - 1) * row;
      HWY_UNROLL(4)
      for (size_t n = 0; n < kQueries; ++n) {
        sum[n][c] = hn::Zero(d);
      }
    }
    const auto add = [&](size_t i, auto part) HWY_ATTR {
      FloatVector of_q[kQueries];
      HWY_UNROLL(4)
      for (size_t n = 0; n < kQueries; ++n) {
        of_q[n] = part.load(q + n * dim + i);
      }
      HWY_UNROLL(4)
      for (size_t c = 0; c < kDotColumns; ++c) {
        hwy::Prefetch(four[c] + kRowsAhead * row + i);
        const FloatVector of_x = part.load(four[c] + i);
        HWY_UNROLL(4)
        for (size_t n = 0; n < kQueries; ++n) {
          sum[n][c] = hn::MulAdd(of_q[n], of_x, sum[n][c]);
        }
      }
    };
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) {
      add(i, WholeVector{});
    }
    if (i < dim) {
      add(i, PartialVector(dim - i));
    }
    HWY_UNROLL(4)
    for (size_t n = 0; n < kQueries; ++n) {
      std::fill_n(p + n * kBlock + j, kDotColumns, 0.0f);
      sums_of_lanes(sum[n], p + n * kBlock + j);
    }
  }
}

// Channels [i, i + kVectors vectors): out[n] = correction[n] * out[n] + sum of p[n][j] * row j.
template <size_t kQueries, size_t kVectors, class T, class Part>
HWY_INLINE void add_weighted_channels(size_t rows, const float* HWY_RESTRICT p,
                                      const T* HWY_RESTRICT x, size_t row,
                                      const float* HWY_RESTRICT correction, float* HWY_RESTRICT out,
                                      size_t out_row, Part part) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVector sum[kQueries][kVectors];
  HWY_UNROLL(4)
  for (size_t n = 0; n < kQueries; ++n) {
    HWY_UNROLL(4)
    for (size_t c = 0; c < kVectors; ++c) {
      sum[n][c] = hn::Mul(hn::Set(d, correction[n]), part.load(out + n * out_row + c * lanes));
    }
  }
  for (size_t j = 0; j < rows; ++j, x += row) {
    FloatVector of_x[kVectors];
    HWY_UNROLL(4)
    for (size_t c = 0; c < kVectors; ++c) {
      hwy::Prefetch(x + kRowsAhead * row + c * lanes);
      of_x[c] = part.load(x + c * lanes);
    }
    HWY_UNROLL(4)
    for (size_t n = 0; n < kQueries; ++n) {
      const FloatVector weight = hn::Set(d, p[n * kBlock + j]);
      HWY_UNROLL(4)
      for (size_t c = 0; c < kVectors; ++c) {
        sum[n][c] = hn::MulAdd(weight, of_x[c], sum[n][c]);
      }
    }
  }
  HWY_UNROLL(4)
  for (size_t n = 0; n < kQueries; ++n) {
    HWY_UNROLL(4)
    for (size_t c = 0; c < kVectors; ++c) {
      part.store(sum[n][c], out + n * out_row + c * lanes);
    }
  }
}

// out [kQueries] rows of size `out_row` = correction [kQueries] * out + p [kQueries][kBlock] x rows
// of x.
template <size_t kQueries, class T>
void add_weighted_rows(size_t rows, size_t dim, const float* HWY_RESTRICT p,
                       const T* HWY_RESTRICT x, size_t row, const float* HWY_RESTRICT correction,
                       float* HWY_RESTRICT out, size_t out_row) {
  constexpr size_t kVectors = 4;
  const size_t lanes = hn::Lanes(FloatTag());
  size_t i = 0;
  for (; i + kVectors * lanes <= dim; i += kVectors * lanes) {
    add_weighted_channels<kQueries, kVectors>(rows, p, x + i, row, correction, out + i, out_row,
                                              WholeVector{});
  }
  for_vectors(dim - i, [=](size_t c, auto part) HWY_ATTR {
    add_weighted_channels<kQueries, 1>(rows, p, x + i + c, row, correction, out + i + c, out_row,
                                       part);
  });
}

void cap_row(size_t keys, float softcap, float* p) {
  const FloatTag d;
  const FloatVector cap = hn::Set(d, softcap);
  for_vectors(keys, [=](size_t j, auto part) HWY_ATTR {
    part.store(hn::Mul(tanh(d, hn::Div(part.load(p + j), cap)), cap), p + j);
  });
}

// Turns the scores p of a block of keys into e^(score - maximum), and updates `sums` except the
// sums of v. Returns the factor for the sums of v.
float softmax_row(const AttentionShape& s, size_t keys, float* p, float* sums) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const FloatTag d;
  if (s.softcap != 0) {
    cap_row(keys, s.softcap, p);
  }
  float& max = sums[0];
  FloatVector most = hn::Set(d, max);
  for_vectors(keys, [&](size_t j, auto part) HWY_ATTR {
    most = hn::Max(part.or_else(part.load(p + j), hn::Set(d, kLowest)), most);
  });
  const float new_max = hn::GetLane(hn::MaxOfLanes(d, most));
  const FloatVector base = hn::Set(d, new_max == kLowest ? 0.0f : new_max);
  const float total = sum_vectors(keys, [=](size_t j, auto part) HWY_ATTR {
    const FloatVector e = exp_below_zero(d, hn::Sub(part.load(p + j), base));
    part.store(e, p + j);
    return e;
  });
  const float correction = hn::GetLane(exp_below_zero(d, hn::Sub(hn::Set(d, max), base)));
  sums[1] = sums[1] * correction + total;
  max = new_max;
  return correction;
}

void multiply(size_t n, const float* factors, float* x) {
  for_vectors(n, [=](size_t j, auto part) HWY_ATTR {
    part.store(hn::Mul(part.load(x + j), part.load(factors + j)), x + j);
  });
}

// A block of keys and kQueries heads that share it, each with one query. Vectors run along the
// channels, so no lane is empty, and keys and values are read once, in place, for all heads.
template <size_t kQueries, class T, class R>
void add_keys(const ForwardJob<T>& job, size_t batch, size_t head, const R& k, const R& v,
              size_t keys, float* sums, size_t sums_head, float* scratch) {
  const AttentionShape& s = job.shape;
  float* const q = scratch;
  float* const p = q + kTogether * s.dim;
  float correction[kQueries];
  const FloatVector scale = hn::Set(FloatTag(), s.scale);
  for (size_t n = 0; n < kQueries; ++n) {
    const T* const from = at(job.q, batch, head + n, 0);
    float* const to = q + n * s.dim;
    for_vectors(s.dim, [=](size_t i, auto part)
                           HWY_ATTR { part.store(hn::Mul(part.load(from + i), scale), to + i); });
  }
  dots_with_rows<kQueries>(keys, s.dim, q, k.data, k.row, p);
  for (size_t n = 0; n < kQueries; ++n) {
    float* const of_query = p + n * kBlock;
    if (k.scales != nullptr) {
      multiply(keys, k.scales, of_query);
    }
    correction[n] = softmax_row(s, keys, of_query, sums + n * sums_head);
    if (v.scales != nullptr) {
      multiply(keys, v.scales, of_query);
    }
  }
  add_weighted_rows<kQueries>(keys, s.dim, p, v.data, v.row, correction, sums + 2, sums_head);
}

// How keys and values are read for a single query: as floats, as bytes with one scale per row, or
// dequantized block by block.
enum class Reads { numbers, bytes, decoded };

bool has_byte_rows(const Codes* codes) {
  return codes != nullptr && codes->layout.bits == 8 && !codes->layout.zero_points &&
         codes->layout.zero == 0 && codes->layout.block >= codes->layout.columns;
}

template <Reads kReads, class T>
auto rows_of(const AttentionInput<T>& x, size_t batch, size_t kv_head, size_t first,
             [[maybe_unused]] size_t keys, [[maybe_unused]] size_t dim,
             [[maybe_unused]] float* scratch) {
  if constexpr (kReads == Reads::numbers) {
    return Rows<T>{at(x, batch, kv_head, first), x.strides.position};
  } else if constexpr (kReads == Reads::decoded) {
    return block_rows(x, batch, kv_head, first, keys, dim, scratch);
  } else {
    const CodeLayout& l = x.codes->layout;
    const AttentionStrides& s = x.strides;
    const size_t row = (batch * s.batch + kv_head * s.head + first * s.position) / dim;
    const size_t step = s.position / dim;
    for (size_t j = 0; j < keys; ++j) {
      scratch[j] = load_scale(x.codes->row(row + j * step).scales, l.scale_type);
    }
    return Rows<int8_t>{reinterpret_cast<const int8_t*>(x.codes->row(row).codes),
                        step * l.row_bytes, scratch};
  }
}

template <Reads kReads, class T>
void attention_piece_of(const ForwardJob<T>& job, size_t batch, size_t kv_head, size_t first,
                        size_t end, float* sums, size_t sums_head, float* scratch) {
  const AttentionShape& s = job.shape;
  const size_t group = s.heads / s.kv_heads;
  float* const k_rows = scratch + kTogether * (s.dim + kBlock);
  float* const v_rows = k_rows + kBlock * (kReads == Reads::bytes ? 1 : s.dim);
  for (size_t n = 0; n < group; ++n) {
    float* const of_head = sums + n * sums_head;
    of_head[0] = -std::numeric_limits<float>::infinity();
    std::fill_n(of_head + 1, s.dim + 1, 0.0f);
  }
  for (size_t key0 = first; key0 < end; key0 += kBlock) {
    const size_t keys = HWY_MIN(kBlock, end - key0);
    const auto k = rows_of<kReads>(job.k, batch, kv_head, key0, keys, s.dim, k_rows);
    const auto v = rows_of<kReads>(job.v, batch, kv_head, key0, keys, s.dim, v_rows);
    using R = std::remove_const_t<decltype(k)>;
    constexpr decltype(&add_keys<1, T, R>) kAdd[kTogether] = {add_keys<1, T, R>, add_keys<2, T, R>,
                                                              add_keys<3, T, R>, add_keys<4, T, R>};
    for (size_t n = 0; n < group; n += kTogether) {
      kAdd[HWY_MIN(group - n, kTogether) - 1](job, batch, kv_head * group + n, k, v, keys,
                                              sums + n * sums_head, sums_head, scratch);
    }
  }
}

template <class T>
void attention_piece(const ForwardJob<T>& job, size_t batch, size_t kv_head, size_t first,
                     size_t end, float* sums, size_t sums_head, float* scratch) {
  const auto piece = !job.shape.encoded ? attention_piece_of<Reads::numbers, T>
                     : has_byte_rows(job.k.codes) && has_byte_rows(job.v.codes)
                         ? attention_piece_of<Reads::bytes, T>
                         : attention_piece_of<Reads::decoded, T>;
  piece(job, batch, kv_head, first, end, sums, sums_head, scratch);
}

// Combines the sums of all chunks of a query in the first chunk, and computes the output.
template <class T>
void finish_row(const ForwardJob<T>& job, size_t batch, size_t head, size_t pieces, float* sums) {
  const FloatTag d;
  const AttentionShape& s = job.shape;
  float* const out = sums + 2;
  for (size_t i = 1; i < pieces; ++i) {
    const float* const piece = sums + i * sums_floats(s.dim);
    const float max = HWY_MAX(sums[0], piece[0]);
    const FloatVector base =
        hn::Set(d, max == -std::numeric_limits<float>::infinity() ? 0.0f : max);
    const FloatVector of_sums = exp_below_zero(d, hn::Sub(hn::Set(d, sums[0]), base));
    const FloatVector of_piece = exp_below_zero(d, hn::Sub(hn::Set(d, piece[0]), base));
    sums[0] = max;
    for_vectors(s.dim + 1, [=](size_t c, auto part) HWY_ATTR {
      const FloatVector sum = hn::Mul(of_sums, part.load(sums + 1 + c));
      part.store(hn::MulAdd(of_piece, part.load(piece + 1 + c), sum), sums + 1 + c);
    });
  }
  job.lse[(batch * s.heads + head) * job.rows] = sums[0] + std::log(sums[1]);
  const FloatVector factor = hn::Set(d, sums[1] == 0 ? 0.0f : 1.0f / sums[1]);
  T* const to = at(job.o, batch, head, 0);
  for_vectors(s.dim, [=](size_t i, auto part)
                         HWY_ATTR { part.store(hn::Mul(part.load(out + i), factor), to + i); });
}

template <class T>
void attention_block(const ForwardJob<T>& job, size_t batch, size_t head, size_t block,
                     float* scratch) {
  const AttentionShape& s = job.shape;
  const size_t kv_head = head / (s.heads / s.kv_heads);
  const size_t query0 = block * kBlock;
  const size_t queries = HWY_MIN(kBlock, s.queries - query0);
  const size_t width = lanes_for(queries);
  float* qt = scratch;
  float* ot = qt + s.dim * kBlock;
  float* st = ot + s.dim * kBlock;
  float* max = st + kBlock * kBlock;
  float* sum = max + kBlock;
  float* k_rows = sum + kBlock;
  float* v_rows = k_rows + (s.encoded ? kBlock * s.dim : row_floats<T>(s.dim));
  const BlockRows q =
      block_rows(at(job.q, batch, head, query0), job.q.strides.position, queries, s.dim, k_rows);
  transpose(q.data, q.row, queries, s.dim, qt, kBlock, width);
  scale_all(s.dim, width, s.scale, qt);
  std::fill_n(max, width, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, width, 0.0f);
  std::fill_n(ot, s.dim * kBlock, 0.0f);
  const size_t visible = visible_keys(s, batch, query0 + queries - 1);
  const size_t begin = first_key(s, query0) / kBlock * kBlock;
  for (size_t key0 = begin; key0 < visible; key0 += kBlock) {
    const size_t keys = HWY_MIN(kBlock, visible - key0);
    const Scores b{batch, head, key0, keys, query0, queries, width};
    const BlockRows k = block_rows(job.k, batch, kv_head, key0, keys, s.dim, k_rows);
    const BlockRows v = block_rows(job.v, batch, kv_head, key0, keys, s.dim, v_rows);
    scores(s, k.data, k.row, qt, b, st, nullptr);
    online_softmax(keys, width, s.dim, key0 == begin, st, max, sum, ot);
    if (spreads(s, v.data, v.row, keys)) {
      add_shown_keys(b, s.dim, v.data, v.row, st, ot);
      continue;
    }
    multiply_block({v.data, 1, v.row, st, kBlock, ot, kBlock}, s.dim, keys, width, key0 > begin);
  }
  float* lse = job.lse + (batch * s.heads + head) * job.rows + query0;
  for (size_t i = 0; i < queries; ++i) {
    lse[i] = max[i] + std::log(sum[i]);
    sum[i] = sum[i] == 0 ? 0.0f : 1.0f / sum[i];
  }
  scale_lanes(s.dim, width, sum, ot);
  store_rows(ot, queries, s.dim, at(job.o, batch, head, query0), job.o.strides.position, k_rows);
}

// Replaces the scores by p = e^(score - lse), and dp by ds = p (dp - delta). With a mask, ds is 0
// if p is 0, even if dp is not finite.
template <bool kMasked>
void softmax_gradient(size_t keys, size_t width, const float* lse, const float* delta, float* st,
                      float* dpt) {
  const FloatTag d;
  [[maybe_unused]] const FloatVector hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < width; i += hn::Lanes(d)) {
    const FloatVector l = hn::LoadU(d, lse + i);
    const FloatVector c = hn::LoadU(d, delta + i);
    for (size_t j = 0; j < keys; ++j) {
      float* s = st + j * kBlock + i;
      float* g = dpt + j * kBlock + i;
      FloatVector p = exp_below_zero(d, hn::Sub(hn::LoadU(d, s), l));
      if constexpr (kMasked) {  // also if lse is NaN
        p = hn::IfThenZeroElse(hn::Eq(hn::LoadU(d, s), hidden), p);
      }
      hn::StoreU(p, d, s);
      const FloatVector ds = hn::Mul(p, hn::Sub(hn::LoadU(d, g), c));
      hn::StoreU(kMasked ? hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), ds) : ds, d, g);
    }
  }
}

// ds *= slope. Zeros stay zero, even if the slope is not finite.
void apply_slopes(size_t keys, size_t width, const float* slopes, float* ds) {
  const FloatTag d;
  for (size_t j = 0; j < keys; ++j) {
    for (size_t i = 0; i < width; i += hn::Lanes(d)) {
      const FloatVector x = hn::LoadU(d, ds + j * kBlock + i);
      const FloatVector sloped = hn::Mul(x, hn::LoadU(d, slopes + j * kBlock + i));
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), sloped), d, ds + j * kBlock + i);
    }
  }
}

// Copies rows of dim elements to rows of padded_dim elements, multiplied by a factor.
void copy_rows(const float* in, size_t in_row, size_t rows, size_t dim, float factor, float* out) {
  const FloatVector f = hn::Set(FloatTag(), factor);
  const size_t out_row = padded_dim(dim);
  for (size_t r = 0; r < rows; ++r, in += in_row, out += out_row) {
    for_vectors(dim, [=](size_t i, auto part)
                         HWY_ATTR { part.store(hn::Mul(f, part.load(in + i)), out + i); });
    std::fill(out + dim, out + out_row, 0.0f);
  }
}

// Processes one block of queries and blocks of keys, and adds to dk and dv.
template <class T>
void attention_backward_block(const AttentionShape& s, const AttentionBackward<T>& x,
                              const BackwardTask& task, float* scratch) {
  const size_t kv_head = task.head / (s.heads / s.kv_heads);
  const size_t query0 = task.query_block * kBlock;
  const size_t queries = HWY_MIN(kBlock, s.queries - query0);
  const size_t width = lanes_for(queries);
  const size_t row = padded_dim(s.dim);
  float* qt = scratch;
  float* dot = qt + s.dim * kBlock;
  float* dqt = dot + s.dim * kBlock;
  float* q_rows = dqt + s.dim * kBlock;
  float* do_rows = q_rows + row * kBlock;
  float* st = do_rows + row * kBlock;
  float* dpt = st + kBlock * kBlock;
  float* lse = dpt + kBlock * kBlock;
  float* delta = lse + kBlock;
  float* k_rows = delta + kBlock;
  float* v_rows = k_rows + row_floats<T>(s.dim);
  float* slopes = v_rows + 3 * row_floats<T>(s.dim);

  const BlockRows q = block_rows(at(x.q, task.batch, task.head, query0), x.q.strides.position,
                                 queries, s.dim, v_rows + row_floats<T>(s.dim));
  const T* o = at(x.o, task.batch, task.head, query0);
  const BlockRows dout =
      block_rows(at(x.dout, task.batch, task.head, query0), x.dout.strides.position, queries, s.dim,
                 v_rows + 2 * row_floats<T>(s.dim));
  const float* saved_lse = x.lse + (task.batch * s.heads + task.head) * s.queries + query0;
  transpose(q.data, q.row, queries, s.dim, qt, kBlock, width);
  scale_all(s.dim, width, s.scale, qt);
  transpose(dout.data, dout.row, queries, s.dim, dot, kBlock, width);
  if (task.dkv) {
    copy_rows(q.data, q.row, queries, s.dim, s.scale, q_rows);
    copy_rows(dout.data, dout.row, queries, s.dim, 1.0f, do_rows);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < width; ++i) {
    // e^(score - inf) = 0 for queries that see no key and for lanes without a query.
    lse[i] = i < queries && saved_lse[i] != -infinity ? saved_lse[i] : infinity;
    delta[i] = 0;
  }
  for (size_t i = 0; i < queries; ++i) {
    const T* oi = o + i * x.o.strides.position;
    const float* gi = dout.data + i * dout.row;
    delta[i] = sum_vectors(s.dim, [=](size_t c, auto part) HWY_ATTR {
      return hn::Mul(part.load(oi + c), part.load(gi + c));
    });
  }
  if (task.dq) {
    std::fill_n(dqt, s.dim * kBlock, 0.0f);
  }
  const bool masked = s.mask.any();
  const bool spread_q = task.dkv && spreads(s, q.data, q.row, queries);
  const bool spread_dout = task.dkv && spreads(s, dout.data, dout.row, queries);
  const size_t visible = visible_keys(s, task.batch, query0 + queries - 1);
  const size_t end = HWY_MIN(visible, task.key_block_end * kBlock);
  const size_t begin = HWY_MAX(first_key(s, query0) / kBlock, task.key_block_begin) * kBlock;
  for (size_t key0 = begin; key0 < end; key0 += kBlock) {
    const size_t keys = HWY_MIN(kBlock, end - key0);
    const BlockRows k =
        block_rows(at(x.k, task.batch, kv_head, key0), x.k.strides.position, keys, s.dim, k_rows);
    const BlockRows v =
        block_rows(at(x.v, task.batch, kv_head, key0), x.v.strides.position, keys, s.dim, v_rows);
    const Scores b{task.batch, task.head, key0, keys, query0, queries, width};
    scores(s, k.data, k.row, qt, b, st, slopes);
    multiply_block({v.data, v.row, 1, dot, kBlock, dpt, kBlock}, keys, s.dim, width, false);
    (masked ? softmax_gradient<true> : softmax_gradient<false>)(keys, width, lse, delta, st, dpt);
    if (s.softcap != 0) {
      apply_slopes(keys, width, slopes, dpt);
    }
    const size_t key = key0 - task.key_origin;
    float* dk = task.dkv ? at(task.dk, task.batch, kv_head, key) : nullptr;
    float* dv = task.dkv ? at(task.dv, task.batch, kv_head, key) : nullptr;
    if (spread_dout) {
      add_seeing_queries(b, s.dim, do_rows, row, st, dv, task.dv.strides.position);
    } else if (task.dkv) {
      multiply_block({st, kBlock, 1, do_rows, row, dv, task.dv.strides.position}, keys, queries,
                     s.dim, true);
    }
    if (spread_q) {
      add_seeing_queries(b, s.dim, q_rows, row, dpt, dk, task.dk.strides.position);
    } else if (task.dkv) {
      multiply_block({dpt, kBlock, 1, q_rows, row, dk, task.dk.strides.position}, keys, queries,
                     s.dim, true);
    }
    if (task.dq && spreads(s, k.data, k.row, keys)) {
      add_shown_keys(b, s.dim, k.data, k.row, dpt, dqt);
    } else if (task.dq) {
      multiply_block({k.data, 1, k.row, dpt, kBlock, dqt, kBlock}, s.dim, keys, width, true);
    }
  }
  if (task.dq) {
    scale_all(s.dim, width, s.scale, dqt);
    store_rows(dqt, queries, s.dim, at(x.dq, task.batch, task.head, query0), x.dq.strides.position,
               k_rows);
  }
}

template <class T>
AttentionBlocks<T> blocks() {
  return {attention_block<T>, attention_piece<T>, finish_row<T>, attention_backward_block<T>};
}
AttentionBlocks<float> blocks_f32() { return blocks<float>(); }
AttentionBlocks<f16> blocks_f16() { return blocks<f16>(); }
AttentionBlocks<bf16> blocks_bf16() { return blocks<bf16>(); }

}  // namespace HWY_NAMESPACE
}  // namespace bowline::detail::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

HWY_EXPORT(blocks_f32);
HWY_EXPORT(blocks_f16);
HWY_EXPORT(blocks_bf16);

template <class T>
AttentionBlocks<T> blocks_for() {
  if constexpr (std::same_as<T, float>) {
    return HWY_DYNAMIC_DISPATCH(blocks_f32)();
  } else if constexpr (std::same_as<T, f16>) {
    return HWY_DYNAMIC_DISPATCH(blocks_f16)();
  } else {
    return HWY_DYNAMIC_DISPATCH(blocks_bf16)();
  }
}

template <class T>
void clear_rows(const AttentionOutput<T>& x, size_t batch, size_t head, size_t begin, size_t end,
                size_t dim) {
  for (size_t j = begin; j < end; ++j) {
    std::fill_n(at(x, batch, head, j), dim, T{});
  }
}

// If true, one task owns dq, dk and dv of a key head and computes the scores once. With fewer key
// heads than threads, dk and dv are computed by blocks of keys, and dq by blocks of queries. This
// computes the scores twice, but adds every sum in the same order.
bool by_key_heads(const AttentionShape& s, const Threads& threads) {
  return s.batch * s.kv_heads >= threads.count();
}

// Number of floats of the dk or dv accumulator of a thread. f32 is accumulated in place.
template <class T>
size_t sum_floats(const AttentionShape& s, const Threads& threads) {
  return kWide<T> ? 0 : (by_key_heads(s, threads) ? s.keys : std::min(s.keys, kBlock)) * s.dim;
}

template <class T>
size_t backward_floats(const AttentionShape& s, const Threads& threads) {
  return block_floats<T>(s) + 2 * sum_floats<T>(s, threads) + 16;
}

// dk and dv of the key blocks of a key head. The query heads and their blocks are added in
// ascending order.
template <class T>
void backward_keys(const AttentionBlocks<T>& blocks, const AttentionShape& s,
                   const AttentionBackward<T>& x, size_t batch, size_t kv_head,
                   size_t key_block_begin, size_t key_block_end, bool dq, float* scratch) {
  const size_t key0 = key_block_begin * kBlock;
  const size_t key_end = std::min(s.keys, key_block_end * kBlock);
  AttentionOutput<float> dk;
  AttentionOutput<float> dv;
  size_t origin = 0;
  if constexpr (kWide<T>) {
    dk = x.dk;
    dv = x.dv;
  } else {
    dk = {scratch + block_floats<T>(s), {0, 0, s.dim}};
    dv = {dk.data + (key_end - key0) * s.dim, {0, 0, s.dim}};
    origin = key0;
  }
  clear_rows(dk, batch, kv_head, key0 - origin, key_end - origin, s.dim);
  clear_rows(dv, batch, kv_head, key0 - origin, key_end - origin, s.dim);
  const size_t group = s.heads / s.kv_heads;
  // For dq, all queries are processed; otherwise only queries that see a key of these blocks.
  const size_t first = dq ? 0 : first_query(s, key0) / kBlock;
  const size_t end = blocks_of(dq ? s.queries : end_of_queries(s, key_end - 1));
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (size_t block = first; block < end; ++block) {
      blocks.backward(
          s, x, {batch, head, block, key_block_begin, key_block_end, dq, true, dk, dv, origin},
          scratch);
    }
  }
  if constexpr (!kWide<T>) {
    for (size_t j = key0; j < key_end; ++j) {
      narrow(s.dim, at(dk, batch, kv_head, j - origin), at(x.dk, batch, kv_head, j));
      narrow(s.dim, at(dv, batch, kv_head, j - origin), at(x.dv, batch, kv_head, j));
    }
  }
}

}  // namespace

template <class T>
size_t attention_scratch_bytes(const AttentionShape& shape, const Threads& threads) {
  return (forward_floats<T>(shape) * threads.count() + row_floats_of_pieces(shape)) * sizeof(float);
}

// Computes every chunk of keys for all heads that share it, then the sums of each query.
template <class T>
void attention_rows(Threads& threads, const AttentionBlocks<T>& of, const ForwardJob<T>& job,
                    float* scratch) {
  const AttentionShape& s = job.shape;
  const size_t visible = visible_keys(s, 0, 0);
  const size_t first = std::min(first_key(s, 0), visible);
  const size_t pieces = pieces_of(visible - first);
  const size_t sums_head = pieces * sums_floats(s.dim);
  float* const sums = scratch + forward_floats<T>(s) * threads.count();
  threads.parallel_for(s.batch * s.kv_heads * pieces, [&](size_t task, size_t thread) {
    const size_t piece = task % pieces;
    const size_t key_head = task / pieces;
    const size_t begin = first + piece * kPiece;
    of.piece(job, key_head / s.kv_heads, key_head % s.kv_heads, begin,
             std::min(visible, begin + kPiece),
             sums + key_head * (s.heads / s.kv_heads) * sums_head + piece * sums_floats(s.dim),
             sums_head, scratch + thread * forward_floats<T>(s));
  });
  threads.parallel_for(s.batch, [&](size_t batch, size_t) {
    for (size_t head = 0; head < s.heads; ++head) {
      of.finish(job, batch, head, pieces, sums + (batch * s.heads + head) * sums_head);
    }
  });
}

template <class T>
void attention(Threads& threads, const AttentionShape& shape, const AttentionInput<T>& q,
               const AttentionInput<T>& k, const AttentionInput<T>& v, const AttentionOutput<T>& o,
               float* lse, size_t rows, void* scratch) {
  const AttentionBlocks<T> of = blocks_for<T>();
  const ForwardJob<T> job{shape, q, k, v, o, lse, rows};
  for (size_t i = 0; shape.queries < rows && i < shape.batch * shape.heads; ++i) {
    clear_rows(o, i / shape.heads, i % shape.heads, shape.queries, rows, shape.dim);
    std::fill(lse + i * rows + shape.queries, lse + (i + 1) * rows,
              -std::numeric_limits<float>::infinity());
  }
  if (is_row(shape)) {
    return attention_rows(threads, of, job, static_cast<float*>(scratch));
  }
  const size_t blocks = blocks_of(shape.queries);
  threads.parallel_for(shape.batch * shape.heads * blocks, [&](size_t task, size_t thread) {
    // With a causal mask, the last blocks have the most work, so they start first.
    const size_t block = blocks - 1 - task % blocks;
    const size_t head = task / blocks % shape.heads;
    of.forward(job, task / blocks / shape.heads, head, block,
               static_cast<float*>(scratch) + thread * forward_floats<T>(shape));
  });
}

template <class T>
size_t attention_backward_scratch_bytes(const AttentionShape& shape, const Threads& threads) {
  return backward_floats<T>(shape, threads) * sizeof(float) * threads.count();
}

template <class T>
void attention_backward(Threads& threads, const AttentionShape& shape,
                        const AttentionBackward<T>& operands, void* scratch) {
  const AttentionBlocks<T> of = blocks_for<T>();
  const size_t query_blocks = blocks_of(shape.queries);
  const size_t key_blocks = blocks_of(shape.keys);
  const size_t key_heads = shape.batch * shape.kv_heads;
  const size_t floats = backward_floats<T>(shape, threads);
  const auto of_thread = [=](size_t thread) {
    return static_cast<float*>(scratch) + thread * floats;
  };
  if (by_key_heads(shape, threads)) {
    threads.parallel_for(key_heads, [&](size_t task, size_t thread) {
      backward_keys(of, shape, operands, task / shape.kv_heads, task % shape.kv_heads, 0,
                    key_blocks, true, of_thread(thread));
    });
    return;
  }
  threads.parallel_for(key_heads * key_blocks, [&](size_t task, size_t thread) {
    const size_t block = task % key_blocks;
    const size_t key_head = task / key_blocks;
    backward_keys(of, shape, operands, key_head / shape.kv_heads, key_head % shape.kv_heads, block,
                  block + 1, false, of_thread(thread));
  });
  threads.parallel_for(shape.batch * shape.heads * query_blocks, [&](size_t task, size_t thread) {
    const size_t block = query_blocks - 1 - task % query_blocks;
    const size_t head = task / query_blocks;
    of.backward(
        shape, operands,
        {head / shape.heads, head % shape.heads, block, 0, key_blocks, true, false, {}, {}, 0},
        of_thread(thread));
  });
}

#define BOWLINE_ATTENTION(T)                                                                     \
  template size_t attention_scratch_bytes<T>(const AttentionShape&, const Threads&);             \
  template void attention(Threads&, const AttentionShape&, const AttentionInput<T>&,             \
                          const AttentionInput<T>&, const AttentionInput<T>&,                    \
                          const AttentionOutput<T>&, float*, size_t, void*);                     \
  template size_t attention_backward_scratch_bytes<T>(const AttentionShape&, const Threads&);    \
  template void attention_backward(Threads&, const AttentionShape&, const AttentionBackward<T>&, \
                                   void*)
BOWLINE_ATTENTION(float);
BOWLINE_ATTENTION(f16);
BOWLINE_ATTENTION(bf16);
#undef BOWLINE_ATTENTION

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
