// Scaled dot product attention of T = f32, f16 or bf16, computed in f32, forward and backward, with
// memory linear in the length.
//
//   s[i, j] = scale * q[i] . k[j], with soft-capping softcap * tanh(s[i, j] / softcap)
//   p = softmax over visible j,  o[i] = sum over j of p[i, j] v[j]
//   lse[i]  = log of the sum over visible j of e^s[i, j]
//
//   dv[j]    = sum over i of p[i, j] do[i]
//   ds[i, j] = p[i, j] (do[i] . v[j] - do[i] . o[i])
//              with soft-capping times 1 - (s[i, j] / softcap)^2
//   dq[i]    = scale * sum over j of ds[i, j] k[j]
//   dk[j]    = scale * sum over i of ds[i, j] q[i]
//
// Shapes    q, o and their gradients [batch, heads, queries, dim]; k, v and their gradients [batch,
//           kv_heads, keys, dim]; lse [batch, heads, queries], contiguous. Query head h reads key
//           head h / (heads / kv_heads); dk and dv are summed over the query heads of a key head.
//           The axis `dim` is contiguous; the others have strides.
// Causal    query i sees the keys j <= i + keys - queries; with a window, only the last `window`
//           of these keys. A query that sees no key has o = 0 and lse = -inf.
// Masks     see runtime/ops/attention.cpp. Rows of k and v that are hidden from a query do not
//           affect its results, even if they contain NaN or infinity.
// Quantized k and v of the forward pass may be quantized, with one row per position of a head.
// Numerics  running maximum and sum over blocks of 64 keys in ascending order. If a head has a
//           single query, chunks of two blocks are summed separately and combined in ascending
//           order. Sums over queries and heads are in ascending order. The bits do not depend on
//           the number of threads.
// Threads   uses the pool; outputs must not overlap inputs; nothing is allocated.
// Source    Dao, "FlashAttention-2", 2023; Milakov and Gimelshein, "Online normalizer calculation
//           for softmax", 2018.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "compute/codes.h"
#include "threads.h"

namespace bowline::detail::cpu {

// At most one of the three masks is set.
struct AttentionMask {
  // Added to the scores; -inf hides a key. The strides are elements per batch, head, query and key.
  const float* added = nullptr;
  size_t batch = 0, head = 0, query = 0, key = 0;
  const uint8_t* shown = nullptr;  // [batch, row]: 0 hides the key
  size_t row = 0;
  // [batch]: keys before this length are visible; clamped to 0 .. keys
  const int32_t* lengths = nullptr;

  bool any() const { return added != nullptr || shown != nullptr || lengths != nullptr; }
};

struct AttentionShape {
  size_t batch = 0;
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t queries = 0;
  size_t keys = 0;
  size_t dim = 0;
  bool causal = false;
  size_t window = 0;  // if causal: maximum number of visible keys per query; 0: no limit
  float scale = 1;
  float softcap = 0;     // 0: no soft-capping
  bool encoded = false;  // k or v are quantized
  AttentionMask mask;
};

// Elements from one batch, head or position to the next.
struct AttentionStrides {
  size_t batch = 0;
  size_t head = 0;
  size_t position = 0;
};

template <class T = float>
struct AttentionInput {
  const T* data = nullptr;
  AttentionStrides strides;
  CodesPointer codes = {};  // instead of data; the strides count values
};

template <class T = float>
struct AttentionOutput {
  T* data = nullptr;
  AttentionStrides strides;
};

template <class T = float>
size_t attention_scratch_bytes(const AttentionShape& shape, const Threads& threads);
// Writes `rows` queries; queries from shape.queries on are treated as seeing no key. lse is [batch,
// heads, rows].
template <class T = float>
void attention(Threads& threads, const AttentionShape& shape, const AttentionInput<T>& q,
               const AttentionInput<T>& k, const AttentionInput<T>& v, const AttentionOutput<T>& o,
               float* lse, size_t rows, void* scratch);

template <class T = float>
struct AttentionBackward {
  AttentionInput<T> q;
  AttentionInput<T> k;
  AttentionInput<T> v;
  AttentionInput<T> o;
  AttentionInput<T> dout;
  const float* lse = nullptr;
  AttentionOutput<T> dq;
  AttentionOutput<T> dk;
  AttentionOutput<T> dv;
};

// 16-bit dtypes need room for the dk and dv accumulators of each thread.
template <class T = float>
size_t attention_backward_scratch_bytes(const AttentionShape& shape, const Threads& threads);
template <class T = float>
void attention_backward(Threads& threads, const AttentionShape& shape,
                        const AttentionBackward<T>& operands, void* scratch);

}  // namespace bowline::detail::cpu
