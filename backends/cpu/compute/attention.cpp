// See attention.h. Scores are kept transposed, [key][query] with the queries along the lanes: then
// q is the only operand that is transposed, once per block of queries, and maxima and sums over
// keys need no exchange between lanes.
#include "compute/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/gemm-inl.h"
#include "compute/math-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ATTENTION_ONCE
#define BOWLINE_CPU_ATTENTION_ONCE
namespace bowline::cpu {
namespace {

// Queries and keys of a block; the blocks of keys decide the order of the sums.
constexpr size_t kBlock = 64;

struct ForwardJob {
  AttentionShape shape;
  AttentionInput q;
  AttentionInput k;
  AttentionInput v;
  AttentionOutput o;
  float* lse;
  size_t rows;  // of lse
};

// What a task of the backward pass computes, and for which blocks of keys.
struct BackwardTask {
  size_t batch;
  size_t head;
  size_t query_block;
  size_t key_block_begin;
  size_t key_block_end;
  bool dq;
  bool dkv;
};

constexpr size_t blocks_of(size_t n) { return (n + kBlock - 1) / kBlock; }

const float* at(const AttentionInput& x, size_t batch, size_t head, size_t position) {
  return x.data + batch * x.strides.batch + head * x.strides.head + position * x.strides.position;
}

float* at(const AttentionOutput& x, size_t batch, size_t head, size_t position) {
  return x.data + batch * x.strides.batch + head * x.strides.head + position * x.strides.position;
}

// Keys of a batch that may be seen.
size_t keys_of(const AttentionShape& s, size_t batch) {
  if (s.mask.lengths == nullptr) {
    return s.keys;
  }
  return std::min(s.keys, static_cast<size_t>(std::max(s.mask.lengths[batch], 0)));
}

// Keys that query i sees, if no mask hides them.
size_t visible_keys(const AttentionShape& s, size_t batch, size_t i) {
  const size_t keys = keys_of(s, batch);
  if (!s.causal) {
    return keys;
  }
  const size_t limit = i + 1 + s.keys;
  return limit <= s.queries ? 0 : std::min(keys, limit - s.queries);
}

// The first query that sees key j, at most `queries`.
size_t first_query(const AttentionShape& s, size_t j) {
  if (!s.causal || j + s.queries <= s.keys) {
    return 0;
  }
  return std::min(s.queries, j + s.queries - s.keys);
}

// A row of `dim` with room for a whole vector.
constexpr size_t padded_dim(size_t dim) { return (dim + 15) / 16 * 16; }

size_t forward_floats(size_t dim) { return kBlock * (2 * dim + kBlock + 2) + 16; }
size_t backward_floats(size_t dim) {
  return kBlock * (3 * dim + 2 * padded_dim(dim) + 2 * kBlock + 2) + 16;
}

}  // namespace
}  // namespace bowline::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::cpu {
namespace HWY_NAMESPACE {

// Lanes that hold `queries`, in whole vectors.
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

// A block of scores: of `keys` keys from key0 on with `queries` queries from query0 on, in `width` lanes.
struct Scores {
  size_t batch;
  size_t head;
  size_t key0;
  size_t keys;
  size_t query0;
  size_t queries;
  size_t width;
};

// Also NaN of a hidden key becomes -inf.
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

// -inf where the query does not see the key.
void scores(const AttentionShape& s, const float* k, size_t k_row, const float* qt, const Scores& b,
            float* st) {
  const auto [batch, head, key0, keys, query0, queries, width] = b;
  multiply_block({k, k_row, 1, qt, kBlock, st, kBlock}, keys, s.dim, width, false);
  for (size_t j = 0; j < keys; ++j) {
    const size_t first = first_query(s, key0 + j);
    if (first > query0) {
      std::fill_n(st + j * kBlock, std::min(width, first - query0),
                  -std::numeric_limits<float>::infinity());
    }
  }
  hide(s.mask, b, st);
}

bool all_finite(const float* x, size_t row, size_t rows, size_t dim) {
  const FloatTag d;
  for (size_t r = 0; r < rows; ++r, x += row) {
    // The sum of x * 0 is 0 for finite numbers alone.
    const float sum = sum_vectors(
        dim, [=](size_t i, auto part) HWY_ATTR { return hn::Mul(part.load(x + i), hn::Zero(d)); });
    if (sum != 0) {
      return false;
    }
  }
  return true;
}

// Whether 0 times an element of these rows is 0: else a product of weights and rows would spread what is hidden.
bool spreads(const AttentionShape& s, const float* x, size_t row, size_t rows) {
  return s.mask.any() && !all_finite(x, row, rows, s.dim);
}

// sums_t [dim][kBlock], by query, += rows x [keys] times weights [keys][kBlock] that are not 0.
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

// Rows of `sums`, by key, += rows x [queries] times weights [keys][kBlock] that are not 0.
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

// Turns a block of scores into e^(score - maximum) and brings maximum, sum and the sums of v in
// line with it.
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
    // As long as a query has seen no key, anything finite will do: e^(-inf - 0) = 0.
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

void attention_block(const ForwardJob& job, size_t batch, size_t head, size_t block,
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
  transpose(at(job.q, batch, head, query0), job.q.strides.position, queries, s.dim, qt, kBlock,
            width);
  scale_all(s.dim, width, s.scale, qt);
  std::fill_n(max, width, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, width, 0.0f);
  std::fill_n(ot, s.dim * kBlock, 0.0f);
  const size_t visible = visible_keys(s, batch, query0 + queries - 1);
  for (size_t key0 = 0; key0 < visible; key0 += kBlock) {
    const size_t keys = HWY_MIN(kBlock, visible - key0);
    const Scores b{batch, head, key0, keys, query0, queries, width};
    const float* k = at(job.k, batch, kv_head, key0);
    const float* v = at(job.v, batch, kv_head, key0);
    scores(s, k, job.k.strides.position, qt, b, st);
    online_softmax(keys, width, s.dim, key0 == 0, st, max, sum, ot);
    if (spreads(s, v, job.v.strides.position, keys)) {
      add_shown_keys(b, s.dim, v, job.v.strides.position, st, ot);
      continue;
    }
    multiply_block({v, 1, job.v.strides.position, st, kBlock, ot, kBlock}, s.dim, keys, width,
                   key0 > 0);
  }
  float* lse = job.lse + (batch * s.heads + head) * job.rows + query0;
  for (size_t i = 0; i < queries; ++i) {
    lse[i] = max[i] + std::log(sum[i]);
    sum[i] = sum[i] == 0 ? 0.0f : 1.0f / sum[i];
  }
  scale_lanes(s.dim, width, sum, ot);
  transpose(ot, kBlock, s.dim, queries, at(job.o, batch, head, query0), job.o.strides.position,
            s.dim);
}

// p = e^(score - lse) in place of the scores and ds = p (dp - delta) in place of dp; with a mask 0 where p is, whatever dp.
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
      if constexpr (kMasked) {  // also where lse is NaN
        p = hn::IfThenZeroElse(hn::Eq(hn::LoadU(d, s), hidden), p);
      }
      hn::StoreU(p, d, s);
      const FloatVector ds = hn::Mul(p, hn::Sub(hn::LoadU(d, g), c));
      hn::StoreU(kMasked ? hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), ds) : ds, d, g);
    }
  }
}

// Rows of dim to rows of padded_dim, times a factor.
void copy_rows(const float* in, size_t in_row, size_t rows, size_t dim, float factor, float* out) {
  const FloatVector f = hn::Set(FloatTag(), factor);
  const size_t out_row = padded_dim(dim);
  for (size_t r = 0; r < rows; ++r, in += in_row, out += out_row) {
    for_vectors(dim, [=](size_t i, auto part)
                         HWY_ATTR { part.store(hn::Mul(f, part.load(in + i)), out + i); });
    std::fill(out + dim, out + out_row, 0.0f);
  }
}

// One block of queries against blocks of keys; dk and dv are added to.
void attention_backward_block(const AttentionShape& s, const AttentionBackward& x,
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

  const float* q = at(x.q, task.batch, task.head, query0);
  const float* o = at(x.o, task.batch, task.head, query0);
  const float* dout = at(x.dout, task.batch, task.head, query0);
  const float* saved_lse = x.lse + (task.batch * s.heads + task.head) * s.queries + query0;
  transpose(q, x.q.strides.position, queries, s.dim, qt, kBlock, width);
  scale_all(s.dim, width, s.scale, qt);
  transpose(dout, x.dout.strides.position, queries, s.dim, dot, kBlock, width);
  if (task.dkv) {
    copy_rows(q, x.q.strides.position, queries, s.dim, s.scale, q_rows);
    copy_rows(dout, x.dout.strides.position, queries, s.dim, 1.0f, do_rows);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < width; ++i) {
    // e^(score - inf) = 0 for queries that see no key and for lanes without a query.
    lse[i] = i < queries && saved_lse[i] != -infinity ? saved_lse[i] : infinity;
    delta[i] = 0;
  }
  for (size_t i = 0; i < queries; ++i) {
    const float* oi = o + i * x.o.strides.position;
    const float* gi = dout + i * x.dout.strides.position;
    delta[i] = sum_vectors(s.dim, [=](size_t c, auto part) HWY_ATTR {
      return hn::Mul(part.load(oi + c), part.load(gi + c));
    });
  }
  if (task.dq) {
    std::fill_n(dqt, s.dim * kBlock, 0.0f);
  }
  const bool masked = s.mask.any();
  const bool spread_q = task.dkv && spreads(s, q, x.q.strides.position, queries);
  const bool spread_dout = task.dkv && spreads(s, dout, x.dout.strides.position, queries);
  const size_t visible = visible_keys(s, task.batch, query0 + queries - 1);
  const size_t end = HWY_MIN(visible, task.key_block_end * kBlock);
  for (size_t key0 = task.key_block_begin * kBlock; key0 < end; key0 += kBlock) {
    const size_t keys = HWY_MIN(kBlock, end - key0);
    const float* k = at(x.k, task.batch, kv_head, key0);
    const float* v = at(x.v, task.batch, kv_head, key0);
    const Scores b{task.batch, task.head, key0, keys, query0, queries, width};
    scores(s, k, x.k.strides.position, qt, b, st);
    multiply_block({v, x.v.strides.position, 1, dot, kBlock, dpt, kBlock}, keys, s.dim, width,
                   false);
    (masked ? softmax_gradient<true> : softmax_gradient<false>)(keys, width, lse, delta, st, dpt);
    float* dk = task.dkv ? at(x.dk, task.batch, kv_head, key0) : nullptr;
    float* dv = task.dkv ? at(x.dv, task.batch, kv_head, key0) : nullptr;
    if (spread_dout) {
      add_seeing_queries(b, s.dim, do_rows, row, st, dv, x.dv.strides.position);
    } else if (task.dkv) {
      multiply_block({st, kBlock, 1, do_rows, row, dv, x.dv.strides.position}, keys, queries, s.dim,
                     true);
    }
    if (spread_q) {
      add_seeing_queries(b, s.dim, q_rows, row, dpt, dk, x.dk.strides.position);
    } else if (task.dkv) {
      multiply_block({dpt, kBlock, 1, q_rows, row, dk, x.dk.strides.position}, keys, queries, s.dim,
                     true);
    }
    if (task.dq && spreads(s, k, x.k.strides.position, keys)) {
      add_shown_keys(b, s.dim, k, x.k.strides.position, dpt, dqt);
    } else if (task.dq) {
      multiply_block({k, 1, x.k.strides.position, dpt, kBlock, dqt, kBlock}, s.dim, keys, width,
                     true);
    }
  }
  if (task.dq) {
    scale_all(s.dim, width, s.scale, dqt);
    transpose(dqt, kBlock, s.dim, queries, at(x.dq, task.batch, task.head, query0),
              x.dq.strides.position, s.dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::cpu {
namespace {

HWY_EXPORT(attention_block);
HWY_EXPORT(attention_backward_block);

void clear_rows(const AttentionOutput& x, size_t batch, size_t head, size_t begin, size_t end,
                size_t dim) {
  for (size_t j = begin; j < end; ++j) {
    std::memset(at(x, batch, head, j), 0, dim * sizeof(float));
  }
}

// dk and dv of the key blocks of one key head: its query heads and their blocks in ascending order.
void backward_keys(const AttentionShape& s, const AttentionBackward& x, size_t batch,
                   size_t kv_head, size_t key_block_begin, size_t key_block_end, bool dq,
                   float* scratch) {
  const size_t key0 = key_block_begin * kBlock;
  const size_t key_end = std::min(s.keys, key_block_end * kBlock);
  clear_rows(x.dk, batch, kv_head, key0, key_end, s.dim);
  clear_rows(x.dv, batch, kv_head, key0, key_end, s.dim);
  const size_t group = s.heads / s.kv_heads;
  // With dq all queries are visited, without it only those that see a key of these blocks.
  const size_t first = dq ? 0 : first_query(s, key0) / kBlock;
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (size_t block = first; block < blocks_of(s.queries); ++block) {
      HWY_DYNAMIC_DISPATCH(attention_backward_block)
      (s, x, {batch, head, block, key_block_begin, key_block_end, dq, true}, scratch);
    }
  }
}

}  // namespace

size_t attention_scratch_bytes(const AttentionShape& shape, const Threads& threads) {
  return forward_floats(shape.dim) * sizeof(float) * threads.count();
}

void attention(Threads& threads, const AttentionShape& shape, const AttentionInput& q,
               const AttentionInput& k, const AttentionInput& v, const AttentionOutput& o,
               float* lse, size_t rows, void* scratch) {
  const ForwardJob job{shape, q, k, v, o, lse, rows};
  for (size_t i = 0; shape.queries < rows && i < shape.batch * shape.heads; ++i) {
    clear_rows(o, i / shape.heads, i % shape.heads, shape.queries, rows, shape.dim);
    std::fill(lse + i * rows + shape.queries, lse + (i + 1) * rows,
              -std::numeric_limits<float>::infinity());
  }
  const size_t blocks = blocks_of(shape.queries);
  threads.parallel_for(shape.batch * shape.heads * blocks, [&](size_t task, size_t thread) {
    // Under a causal mask the last blocks have the most work, so they come first.
    const size_t block = blocks - 1 - task % blocks;
    const size_t head = task / blocks % shape.heads;
    HWY_DYNAMIC_DISPATCH(attention_block)
    (job, task / blocks / shape.heads, head, block,
     static_cast<float*>(scratch) + thread * forward_floats(shape.dim));
  });
}

size_t attention_backward_scratch_bytes(const AttentionShape& shape, const Threads& threads) {
  return backward_floats(shape.dim) * sizeof(float) * threads.count();
}

void attention_backward(Threads& threads, const AttentionShape& shape,
                        const AttentionBackward& operands, void* scratch) {
  const size_t query_blocks = blocks_of(shape.queries);
  const size_t key_blocks = blocks_of(shape.keys);
  const size_t key_heads = shape.batch * shape.kv_heads;
  const auto of_thread = [=](size_t thread) {
    return static_cast<float*>(scratch) + thread * backward_floats(shape.dim);
  };
  // One task owns dq, dk and dv of a key head and computes the scores once. With fewer key heads
  // than threads, dk and dv by blocks of keys and dq by blocks of queries: the scores twice, but
  // every sum in the same order.
  if (key_heads >= threads.count()) {
    threads.parallel_for(key_heads, [&](size_t task, size_t thread) {
      backward_keys(shape, operands, task / shape.kv_heads, task % shape.kv_heads, 0, key_blocks,
                    true, of_thread(thread));
    });
    return;
  }
  threads.parallel_for(key_heads * key_blocks, [&](size_t task, size_t thread) {
    const size_t block = task % key_blocks;
    const size_t key_head = task / key_blocks;
    backward_keys(shape, operands, key_head / shape.kv_heads, key_head % shape.kv_heads, block,
                  block + 1, false, of_thread(thread));
  });
  threads.parallel_for(shape.batch * shape.heads * query_blocks, [&](size_t task, size_t thread) {
    const size_t block = query_blocks - 1 - task % query_blocks;
    const size_t head = task / query_blocks;
    HWY_DYNAMIC_DISPATCH(attention_backward_block)
    (shape, operands, {head / shape.heads, head % shape.heads, block, 0, key_blocks, true, false},
     of_thread(thread));
  });
}

}  // namespace bowline::cpu
#endif  // HWY_ONCE
