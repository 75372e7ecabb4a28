// The backward pass of attention.h. Scores are stored as in the forward pass (attention.cpp).
#include <algorithm>
#include <limits>

#include "compute/attention.h"
#include "compute/attention_blocks.h"
#include "compute/convert.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/attention_backward.cpp"
#include "hwy/foreach_target.h"
#include "compute/attention-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ATTENTION_BACKWARD_ONCE
#define BOWLINE_CPU_ATTENTION_BACKWARD_ONCE
namespace bowline::detail::cpu {
namespace {

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

// The size of a row of `dim` elements, padded to whole vectors.
constexpr size_t padded_dim(size_t dim) { return (dim + 15) / 16 * 16; }

template <class T>
size_t block_floats(const AttentionShape& s) {
  const size_t slopes = s.softcap == 0 ? 0 : kBlock;
  return kBlock * (3 * s.dim + 2 * padded_dim(s.dim) + 2 * kBlock + slopes + 2) +
         4 * row_floats<T>(s.dim);
}

// Processes one block of queries and blocks of keys, and adds to dk and dv.
template <class T>
using BackwardBlock = void (*)(const AttentionShape& s, const AttentionBackward<T>& x,
                               const BackwardTask& task, float* scratch);

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

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

// The scratch memory of a block of queries.
template <class T>
struct BlockMemory {
  BlockMemory(const AttentionShape& s, float* scratch)
      : qt(scratch),
        dot(qt + s.dim * kBlock),
        dqt(dot + s.dim * kBlock),
        q_rows(dqt + s.dim * kBlock),
        do_rows(q_rows + padded_dim(s.dim) * kBlock),
        st(do_rows + padded_dim(s.dim) * kBlock),
        dpt(st + kBlock * kBlock),
        lse(dpt + kBlock * kBlock),
        delta(lse + kBlock),
        k(delta + kBlock),
        v(k + row_floats<T>(s.dim)),
        q(v + row_floats<T>(s.dim)),
        dout(q + row_floats<T>(s.dim)),
        slopes(dout + row_floats<T>(s.dim)) {}

  float *qt, *dot, *dqt;    // [dim][kBlock]
  float *q_rows, *do_rows;  // [kBlock][padded_dim]
  float *st, *dpt;          // [kBlock keys][kBlock]
  float *lse, *delta;       // [kBlock]
  float *k, *v, *q, *dout;  // converted rows of a 16-bit dtype
  float* slopes;            // derivatives of soft-capping
};

// lse and delta = do . o of the queries of a block. Queries that see no key and lanes without a
// query have lse = inf: e^(score - inf) = 0.
template <class T>
void query_statistics(const AttentionShape& s, const AttentionBackward<T>& x,
                      const BackwardTask& task, const Scores& b, const BlockRows& dout,
                      const BlockMemory<T>& m) {
  const T* o = at(x.o, task.batch, task.head, b.query0);
  const float* saved_lse = x.lse + (task.batch * s.heads + task.head) * s.queries + b.query0;
  const float infinity = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < b.width; ++i) {
    m.lse[i] = i < b.queries && saved_lse[i] != -infinity ? saved_lse[i] : infinity;
    m.delta[i] = 0;
  }
  for (size_t i = 0; i < b.queries; ++i) {
    const T* oi = o + i * x.o.strides.position;
    const float* gi = dout.data + i * dout.row;
    m.delta[i] = sum_vectors(s.dim, [=](size_t c, auto part) HWY_ATTR {
      return hn::Mul(part.load(oi + c), part.load(gi + c));
    });
  }
}

// sums += rows of q or do times their weights, by key.
void add_queries(const Scores& b, size_t dim, const float* rows, const float* weights, bool spread,
                 float* sums, size_t sums_row) {
  const size_t row = padded_dim(dim);
  if (spread) {
    add_seeing_queries(b, dim, rows, row, weights, sums, sums_row);
  } else {
    multiply_block({weights, kBlock, 1, rows, row, sums, sums_row}, b.keys, b.queries, dim, true);
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
  const BlockMemory<T> m(s, scratch);
  const BlockRows q =
      block_rows(at(x.q, task.batch, task.head, query0), x.q.strides.position, queries, s.dim, m.q);
  const BlockRows dout = block_rows(at(x.dout, task.batch, task.head, query0),
                                    x.dout.strides.position, queries, s.dim, m.dout);
  transpose(q.data, q.row, queries, s.dim, m.qt, kBlock, width);
  scale_all(s.dim, width, s.scale, m.qt);
  transpose(dout.data, dout.row, queries, s.dim, m.dot, kBlock, width);
  if (task.dkv) {
    copy_rows(q.data, q.row, queries, s.dim, s.scale, m.q_rows);
    copy_rows(dout.data, dout.row, queries, s.dim, 1.0f, m.do_rows);
  }
  Scores b{task.batch, task.head, 0, 0, query0, queries, width};
  query_statistics(s, x, task, b, dout, m);
  if (task.dq) {
    std::fill_n(m.dqt, s.dim * kBlock, 0.0f);
  }
  const bool spread_q = task.dkv && spreads(s, q.data, q.row, queries);
  const bool spread_dout = task.dkv && spreads(s, dout.data, dout.row, queries);
  const size_t visible = visible_keys(s, task.batch, query0 + queries - 1);
  const size_t end = HWY_MIN(visible, task.key_block_end * kBlock);
  const size_t begin = HWY_MAX(first_key(s, query0) / kBlock, task.key_block_begin) * kBlock;
  for (b.key0 = begin; b.key0 < end; b.key0 += kBlock) {
    const size_t keys = b.keys = HWY_MIN(kBlock, end - b.key0);
    const BlockRows k =
        block_rows(at(x.k, task.batch, kv_head, b.key0), x.k.strides.position, keys, s.dim, m.k);
    const BlockRows v =
        block_rows(at(x.v, task.batch, kv_head, b.key0), x.v.strides.position, keys, s.dim, m.v);
    scores(s, k.data, k.row, m.qt, b, m.st, m.slopes);
    multiply_block({v.data, v.row, 1, m.dot, kBlock, m.dpt, kBlock}, keys, s.dim, width, false);
    (s.mask.any() ? softmax_gradient<true> : softmax_gradient<false>)(keys, width, m.lse, m.delta,
                                                                      m.st, m.dpt);
    if (s.softcap != 0) {
      apply_slopes(keys, width, m.slopes, m.dpt);
    }
    if (task.dkv) {
      const size_t key = b.key0 - task.key_origin;
      add_queries(b, s.dim, m.do_rows, m.st, spread_dout, at(task.dv, task.batch, kv_head, key),
                  task.dv.strides.position);
      add_queries(b, s.dim, m.q_rows, m.dpt, spread_q, at(task.dk, task.batch, kv_head, key),
                  task.dk.strides.position);
    }
    if (task.dq && spreads(s, k.data, k.row, keys)) {
      add_shown_keys(b, s.dim, k.data, k.row, m.dpt, m.dqt);
    } else if (task.dq) {
      multiply_block({k.data, 1, k.row, m.dpt, kBlock, m.dqt, kBlock}, s.dim, keys, width, true);
    }
  }
  if (task.dq) {
    scale_all(s.dim, width, s.scale, m.dqt);
    store_rows(m.dqt, queries, s.dim, at(x.dq, task.batch, task.head, query0),
               x.dq.strides.position, m.k);
  }
}

BackwardBlock<float> backward_f32() { return attention_backward_block<float>; }
BackwardBlock<f16> backward_f16() { return attention_backward_block<f16>; }
BackwardBlock<bf16> backward_bf16() { return attention_backward_block<bf16>; }

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

template <class T>
BackwardBlock<T> backward_for() {
  return BOWLINE_BEST_FOR(T, backward)();
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
void backward_keys(BackwardBlock<T> backward, const AttentionShape& s,
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
      backward(s, x, {batch, head, block, key_block_begin, key_block_end, dq, true, dk, dv, origin},
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
size_t attention_backward_scratch_bytes(const AttentionShape& shape, const Threads& threads) {
  return backward_floats<T>(shape, threads) * sizeof(float) * threads.count();
}

template <class T>
void attention_backward(Threads& threads, const AttentionShape& shape,
                        const AttentionBackward<T>& operands, void* scratch) {
  const BackwardBlock<T> backward = backward_for<T>();
  const size_t query_blocks = blocks_of(shape.queries);
  const size_t key_blocks = blocks_of(shape.keys);
  const size_t key_heads = shape.batch * shape.kv_heads;
  const size_t floats = backward_floats<T>(shape, threads);
  const auto of_thread = [=](size_t thread) {
    return static_cast<float*>(scratch) + thread * floats;
  };
  if (by_key_heads(shape, threads)) {
    threads.parallel_for(key_heads, [&](size_t task, size_t thread) {
      backward_keys(backward, shape, operands, task / shape.kv_heads, task % shape.kv_heads, 0,
                    key_blocks, true, of_thread(thread));
    });
    return;
  }
  threads.parallel_for(key_heads * key_blocks, [&](size_t task, size_t thread) {
    const size_t block = task % key_blocks;
    const size_t key_head = task / key_blocks;
    backward_keys(backward, shape, operands, key_head / shape.kv_heads, key_head % shape.kv_heads,
                  block, block + 1, false, of_thread(thread));
  });
  threads.parallel_for(shape.batch * shape.heads * query_blocks, [&](size_t task, size_t thread) {
    const size_t block = query_blocks - 1 - task % query_blocks;
    const size_t head = task / query_blocks;
    backward(shape, operands,
             {head / shape.heads, head % shape.heads, block, 0, key_blocks, true, false, {}, {}, 0},
             of_thread(thread));
  });
}

#define BOWLINE_ATTENTION(T)                                                                     \
  template size_t attention_backward_scratch_bytes<T>(const AttentionShape&, const Threads&);    \
  template void attention_backward(Threads&, const AttentionShape&, const AttentionBackward<T>&, \
                                   void*)
BOWLINE_ATTENTION(float);
BOWLINE_ATTENTION(f16);
BOWLINE_ATTENTION(bf16);
#undef BOWLINE_ATTENTION

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
