// See attention.h. Scores are stored transposed, [key][query], with the queries along the lanes. So
// q is the only transposed operand, once per block of queries, and maxima and sums over keys need
// no exchange between lanes.
#include "compute/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/attention_blocks.h"
#include "compute/convert.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/attention.cpp"
#include "hwy/foreach_target.h"
#include "compute/attention-inl.h"
#include "compute/codes-inl.h"
#include "compute/dots-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ATTENTION_ONCE
#define BOWLINE_CPU_ATTENTION_ONCE
namespace bowline::detail::cpu {
namespace {

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

template <class T>
size_t forward_floats(const AttentionShape& s) {
  const size_t rows = s.encoded ? kBlock * s.dim : row_floats<T>(s.dim);
  return kBlock * (2 * s.dim + kBlock + 2) + 2 * rows + 16;
}
template <class T>
struct AttentionForward {
  void (*forward)(const ForwardJob<T>& job, size_t batch, size_t head, size_t block,
                  float* scratch);
  // Processes all heads that share a key head. `sums` points to the sums of the first head; those
  // of the next head follow after `sums_head` floats.
  void (*piece)(const ForwardJob<T>& job, size_t batch, size_t kv_head, size_t first, size_t end,
                float* sums, size_t sums_head, float* scratch);
  void (*finish)(const ForwardJob<T>& job, size_t batch, size_t head, size_t pieces, float* sums);
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

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

// The rows of a block in f32 (attention-inl.h), for keys or values that may be quantized.
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
                        static_cast<size_t>(step * l.row_bytes), scratch};
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
#if HWY_TARGET == HWY_SCALAR
    // Heads together would only make the code longer.
    constexpr decltype(&add_keys<1, T, R>) kAdd[] = {add_keys<1, T, R>};
#else
    constexpr decltype(&add_keys<1, T, R>) kAdd[kTogether] = {add_keys<1, T, R>, add_keys<2, T, R>,
                                                              add_keys<3, T, R>, add_keys<4, T, R>};
#endif
    constexpr size_t kHeads = std::size(kAdd);
    for (size_t n = 0; n < group; n += kHeads) {
      kAdd[HWY_MIN(group - n, kHeads) - 1](job, batch, kv_head * group + n, k, v, keys,
                                           sums + n * sums_head, sums_head, scratch);
    }
  }
}

template <class T>
void attention_piece(const ForwardJob<T>& job, size_t batch, size_t kv_head, size_t first,
                     size_t end, float* sums, size_t sums_head, float* scratch) {
  const auto piece = !kHasQuantized || !job.shape.encoded ? attention_piece_of<Reads::numbers, T>
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

template <class T>
AttentionForward<T> forward() {
  return {attention_block<T>, attention_piece<T>, finish_row<T>};
}
AttentionForward<float> forward_f32() { return forward<float>(); }
AttentionForward<f16> forward_f16() { return forward<f16>(); }
AttentionForward<bf16> forward_bf16() { return forward<bf16>(); }

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

template <class T>
AttentionForward<T> forward_for() {
  return BOWLINE_BEST_FOR(T, forward)();
}

}  // namespace

template <class T>
size_t attention_scratch_bytes(const AttentionShape& shape, const Threads& threads) {
  return (forward_floats<T>(shape) * threads.count() + row_floats_of_pieces(shape)) * sizeof(float);
}

// Computes every chunk of keys for all heads that share it, then the sums of each query.
template <class T>
void attention_rows(Threads& threads, const AttentionForward<T>& of, const ForwardJob<T>& job,
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
  const AttentionForward<T> of = forward_for<T>();
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

#define BOWLINE_ATTENTION(T)                                                         \
  template size_t attention_scratch_bytes<T>(const AttentionShape&, const Threads&); \
  template void attention(Threads&, const AttentionShape&, const AttentionInput<T>&, \
                          const AttentionInput<T>&, const AttentionInput<T>&,        \
                          const AttentionOutput<T>&, float*, size_t, void*)
BOWLINE_ATTENTION(float);
BOWLINE_ATTENTION(f16);
BOWLINE_ATTENTION(bf16);
#undef BOWLINE_ATTENTION

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
