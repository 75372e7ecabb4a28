// Shared by the kernels of attention and its gradient: the operands, the masks, and the division of
// rows among blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/strides.h"
#include "device/codes.cuh"
#include "device/elements.cuh"
#include "device/storage.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {

constexpr int64_t kMaxHeadDim = 256;
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

// Stored elements of one of the three dtypes.
struct Stored {
  const void* data;
  DType type;

  __device__ float one(int64_t i) const {
    return type == DType::f32   ? static_cast<const float*>(data)[i]
           : type == DType::f16 ? read(static_cast<const __half*>(data) + i)
                                : read(static_cast<const __nv_bfloat16*>(data) + i);
  }
  // Four neighbours, from a multiple of four on.
  __device__ float4 four(int64_t i) const {
    if (type == DType::f32) {
      return load4(static_cast<const float*>(data) + i);
    }
    float x[4];
    if (type == DType::f16) {
      read_some(static_cast<const __half*>(data) + i, x);
    } else {
      read_some(static_cast<const __nv_bfloat16*>(data) + i, x);
    }
    return make_float4(x[0], x[1], x[2], x[3]);
  }
};

// Results in one of the three dtypes.
struct Target {
  void* data;
  DType type;

  __device__ void put(int64_t i, float x) const {
    if (type == DType::f32) {
      static_cast<float*>(data)[i] = x;
    } else if (type == DType::f16) {
      write(static_cast<__half*>(data) + i, x);
    } else {
      write(static_cast<__nv_bfloat16*>(data) + i, x);
    }
  }
  // Two neighbours, from a multiple of two on.
  __device__ void put_two(int64_t i, float x, float y) const {
    const float v[2] = {x, y};
    if (type == DType::f32) {
      write_some(static_cast<float*>(data) + i, v);
    } else if (type == DType::f16) {
      write_some(static_cast<__half*>(data) + i, v);
    } else {
      write_some(static_cast<__nv_bfloat16*>(data) + i, v);
    }
  }
  // Four neighbours, from a multiple of four on.
  __device__ void put_four(int64_t i, float4 v) const {
    const float x[4] = {v.x, v.y, v.z, v.w};
    if (type == DType::f32) {
      store4(static_cast<float*>(data) + i, v);
    } else if (type == DType::f16) {
      write_some(static_cast<__half*>(data) + i, x);
    } else {
      write_some(static_cast<__nv_bfloat16*>(data) + i, x);
    }
  }
};

// The state of a softmax: the largest score so far in units of ln 2, and the sum of 2^(s - top).
struct Softmax {
  float top = -INFINITY;
  float sum = 0;

  // Raises `top`. Returns the factor of all sums so far.
  __device__ float raise(float new_top) {
    const float factor = new_top == top ? 1.0f : power_of_two(top - new_top);
    top = new_top;
    sum *= factor;
    return factor;
  }
  __device__ float weight(float score) const {
    return score == -INFINITY ? 0.0f : power_of_two(score - top);
  }
  __device__ float inverse() const { return sum == 0 ? 0.0f : 1.0f / sum; }
  // The log-sum-exp.
  __device__ float lse() const { return sum == 0 ? -INFINITY : kLn2 * (top + log2f(sum)); }
};

// How a mask hides keys from queries; at most one of the three is set.
struct Mask {
  // Added to the scores; -infinity hides a key. The strides are elements per batch, head, query and
  // key.
  Stored added;
  int64_t steps[4];
  const uint8_t* shown;    // [batch, keys]: 0 hides the key
  const int32_t* lengths;  // [batch]: keys before this length are visible

  __host__ __device__ bool any() const {
    return added.data != nullptr || shown != nullptr || lengths != nullptr;
  }
};

// The rows of one head. Row r of the head is row `first` + r * `step` of the operand, which has
// less than 2^31 (see refusal).
struct Rows {
  Stored from;
  Codes codes;  // of quantized rows; if it has no values, `from` has the elements
  int first;
  int step;
  int count;
  int dim;
  bool four;             // accesses of four elements are legal
  bool eight;            // accesses of 16 bytes are legal, from multiples of eight elements on
  const uint8_t* shown;  // null: all rows are visible

  __device__ bool visible(int row) const {
    return row < count && (shown == nullptr || shown[row] != 0);
  }
  // Only the rows before `end` are visible.
  __device__ Rows before(int end) const {
    Rows out = *this;
    out.count = min(count, end);
    return out;
  }
  __device__ int row_of(int row) const { return first + row * step; }
  __device__ int64_t at(int row, int column) const { return int64_t{row_of(row)} * dim + column; }
  // Elements 4 q to 4 q + 3 of a row; 0 outside of the row, or if the row is hidden.
  __device__ float4 quad(int row, int q) const {
    if (4 * q >= dim || !visible(row)) {
      return make_float4(0, 0, 0, 0);
    }
    if (codes.codes != nullptr) {
      float x[4];
      decode4(codes, row_of(row), static_cast<uint32_t>(4 * q), static_cast<uint32_t>(dim), x);
      return make_float4(x[0], x[1], x[2], x[3]);
    }
    const int64_t i = at(row, 4 * q);
    if (four) {
      return from.four(i);
    }
    // A loop over elements of an array would be unrolled, or the array would be in memory.
    float4 v = make_float4(0, 0, 0, 0);
    BOWLINE_ROLL
    for (int j = min(dim - 4 * q, 4) - 1; j >= 0; --j) {
      v = make_float4(from.one(i + j), v.x, v.y, v.z);
    }
    return v;
  }
  // 16 bytes of elements of T, from 8 q on; 0 as with `quad`. The rows are neither hidden nor
  // quantized.
  template <class T>
  __device__ uint4 pack(int row, int q) const {
    const T* const at_row = static_cast<const T*>(from.data) + at(row, 8 * q);
    if (8 * q >= dim || row >= count) {
      return {0, 0, 0, 0};
    }
    if (eight) {
      return *reinterpret_cast<const uint4*>(at_row);
    }
    float x[8] = {};
    BOWLINE_ROLL
    for (int j = min(dim - 8 * q, 8) - 1; j >= 0; --j) {
      BOWLINE_UNROLL
      for (int e = 7; e > 0; --e) {
        x[e] = x[e - 1];
      }
      x[0] = read(at_row + j);
    }
    return pack_of<T>(x);
  }
};

struct Problem {
  Stored q;
  Stored k;
  Stored v;
  Stored o;
  Stored d_o;
  Codes k_codes;
  Codes v_codes;
  const float* lse;
  Target out;         // o, dq or dk
  Target out_v;       // dv
  float* row_out;     // lse, [batch, head, query]
  float* statistics;  // of the gradient, [batch, head, 2, padded(queries)]: see lse_of, delta_of
  int batches;
  int heads;
  int kv_heads;
  int queries;
  int keys;
  int dim;
  int packed;      // heads per position if q, k and v are parts of one tensor, else 0
  unsigned tiles;  // number of blocks along the own rows of a head
  int part;        // keys per part of the forward pass; each part has its own `out` and `row_out`
  // Number of valid rows; all rows unless a dynamic dimension is smaller. A query behind the
  // current size sees no key.
  int live_queries;
  int live_keys;
  const uint32_t* query_count;
  const uint32_t* key_count;
  int seen_keys;  // visible keys of the current batch element, limited by lengths
  bool causal;
  bool four;   // Rows::four
  bool eight;  // Rows::eight
  int window;  // maximum number of visible keys per query; 0: no limit
  float scale;
  float softcap;  // 0: no soft-capping
  Mask mask;

  __device__ Rows of_queries(Stored from, int64_t batch, int head) const {
    return {from,  {},      static_cast<int>(batch) * queries * heads + head,
            heads, queries, dim,
            four,  eight,   nullptr};
  }
  __device__ Rows queries_of(int64_t batch, int head) const {
    Rows rows = of_queries(q, batch, head);
    if (packed != 0) {
      rows.first = static_cast<int>(batch) * queries * packed + head;
      rows.step = packed;
    }
    return rows;
  }
  __device__ Rows of_keys(Stored from, const Codes& codes, int64_t batch, int head) const {
    const int step = packed != 0 ? packed : kv_heads;
    return {from, codes,     static_cast<int>(batch) * keys * step + head,
            step, seen_keys, dim,
            four, eight,     mask.shown == nullptr ? nullptr : mask.shown + batch * keys};
  }
  __device__ Rows keys_of(int64_t batch, int head) const {
    return of_keys(k, k_codes, batch, head);
  }
  __device__ Rows values_of(int64_t batch, int head) const {
    return of_keys(v, v_codes, batch, head);
  }
  // Writes an element of o, or of the part that this block computes.
  __device__ void put(int64_t batch, int head, int query, int column, float x) const {
    const int64_t row = (batch * queries + query) * heads + head;
    out.put((blockIdx.y * rows() + row) * dim + column, x);
  }
  __device__ void put_lse(int64_t batch, int head, int query, float x) const {
    row_out[blockIdx.y * rows() + statistic(batch, head, query)] = x;
  }
  // The log-sum-exp of a query in units of ln 2, and delta. Those of four queries are 16 bytes.
  __device__ float* lse_of(int64_t batch, int head, int query) const {
    return statistics + 2 * (batch * heads + head) * padded(queries) + query;
  }
  __device__ float* delta_of(int64_t batch, int head, int query) const {
    return lse_of(batch, head, query) + padded(queries);
  }
  // Sets what lse_of is the place of, and returns it.
  __device__ float copy_lse(int64_t batch, int head, int query) const {
    const float given = lse[statistic(batch, head, query)];
    // A query that sees no key has only hidden scores.
    const float x = given == -INFINITY ? 0.0f : given * kLog2E;
    *lse_of(batch, head, query) = x;
    return x;
  }
  __host__ __device__ static int64_t padded(int64_t queries) { return (queries + 3) / 4 * 4; }
  // The place of a query in lse.
  __device__ int64_t statistic(int64_t batch, int head, int query) const {
    return (batch * heads + head) * queries + query;
  }
  // Number of queries over all heads.
  __host__ __device__ int64_t rows() const { return int64_t{batches} * heads * queries; }
  // Number of keys that the query sees.
  __device__ int seen(int query) const {
    const int visible = causal ? query + live_keys - live_queries + 1 : live_keys;
    return query < live_queries ? max(0, min(seen_keys, visible)) : 0;
  }
  // The first visible key, if a key is visible.
  __device__ int first_key(int query) const {
    return window == 0 ? 0 : max(0, query + live_keys - live_queries + 1 - window);
  }
  // The first query that sees the key, if a query does.
  __device__ int first_query(int key) const {
    return causal ? max(0, key + live_queries - live_keys) : 0;
  }
  // One past the last query that sees the key.
  __device__ int end_of_queries(int key) const {
    return window == 0 ? queries : max(0, min(queries, key - (keys - queries) + window));
  }
  __device__ float capped(float score) const {
    return softcap == 0 ? score : softcap * tanhf(score / softcap);
  }
  // The derivative of a soft-capped score with respect to the score.
  __device__ float cap_slope(float capped_score) const {
    const float tanh = softcap == 0 ? 0.0f : capped_score / softcap;
    return 1 - tanh * tanh;
  }
  __device__ void read_counts(int64_t batch) {
    live_queries = query_count != nullptr ? static_cast<int>(*query_count) : queries;
    live_keys = key_count != nullptr ? static_cast<int>(*key_count) : keys;
    seen_keys = mask.lengths != nullptr
                    ? max(0, min(live_keys, static_cast<int>(mask.lengths[batch])))
                    : live_keys;
  }
  // True if queries [query, last_query] see all keys [key, last_key], with no mask and no soft-cap.
  __device__ bool sees_all(int query, int last_query, int key, int last_key) const {
    return last_query < live_queries && last_key < seen(query) && key >= first_key(last_query) &&
           mask.added.data == nullptr && mask.shown == nullptr && softcap == 0;
  }
  // The score of a product of q and k in units of ln 2, so that the weight is a power of two.
  __device__ float score_of(float dot, int64_t batch, int head, int query, int key) const {
    const bool sees = key < seen(query) && key >= first_key(query);
    return sees ? kLog2E * masked(capped(scale * dot), batch, head, query, key) : -INFINITY;
  }
  // What the additive mask adds to a score.
  __device__ float added(int64_t batch, int head, int query, int key) const {
    return mask.added.one(batch * mask.steps[0] + head * mask.steps[1] + query * mask.steps[2] +
                          key * mask.steps[3]);
  }
  // A score after masking: -infinity if the query does not see the key, even if the score is NaN.
  __device__ float masked(float score, int64_t batch, int head, int query, int key) const {
    if (mask.shown != nullptr && mask.shown[batch * keys + key] == 0) {
      return -INFINITY;
    }
    if (mask.added.data != nullptr) {
      const float more = added(batch, head, query, key);
      return more == -INFINITY ? more : score + more;
    }
    return score;
  }
};

// The same problem, with operands of elements of type T. Otherwise, every access would have
// code for three dtypes.
template <class T>
__device__ Problem typed(Problem p) {
  for (Stored* operand : {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.mask.added}) {
    operand->type = kTypeOf<T>;
  }
  p.out.type = p.out.type == DType::f32 ? DType::f32 : kTypeOf<T>;  // parts have f32 results
  p.out_v.type = kTypeOf<T>;
  return p;
}

// The own rows of a block. The last rows come first, because they take longest with causal masking.
struct Place {
  int first;
  int head;
  int batch;
  // `before`: blocks of the launch that have other work.
  __device__ Place(unsigned tiles, int own, int heads, unsigned before = 0)
      : Place(blockIdx.x - before, tiles, own, static_cast<unsigned>(heads)) {}

 private:
  __device__ Place(unsigned block, unsigned tiles, int own, unsigned heads)
      : first(static_cast<int>(tiles - 1 - block % tiles) * own),
        head(static_cast<int>(block / tiles % heads)),
        batch(static_cast<int>(block / tiles / heads)) {}
};

inline const char* refusal(const NodeView& node) {
  const Shape& q = node.in(0);
  const Shape& k = node.in(1);
  if (q[3] > kMaxHeadDim) {
    return "Attention takes heads of up to 256 elements.";
  }
  const double rows = static_cast<double>(q[0]) * static_cast<double>(q[2]) *
                      static_cast<double>(std::max(q[1], k[1]));
  return rows > INT32_MAX ? "The rows of all heads are more than 2^31." : nullptr;
}

// `attributes`: of Attention or PackedAttention.
template <class Table>
Problem problem_of(const Table& attributes, const Shape& q, const Shape& k) {
  Problem p{};
  p.batches = static_cast<int>(q[0]);
  p.heads = static_cast<int>(q[2]);
  p.kv_heads = static_cast<int>(k[2]);
  p.queries = static_cast<int>(q[1]);
  p.keys = static_cast<int>(k[1]);
  p.dim = static_cast<int>(q[3]);
  p.causal = attributes.causal();
  // A window that hides no key is ignored.
  p.window = std::cmp_less(attributes.window(), p.keys) ? static_cast<int>(attributes.window()) : 0;
  p.softcap = attributes.softcap();
  p.scale = attributes.scale() == 0 ? static_cast<float>(1 / std::sqrt(static_cast<double>(p.dim)))
                                    : attributes.scale();
  p.part = p.keys;
  p.live_queries = p.queries;
  p.live_keys = p.keys;
  return p;
}

// The mask is input `mask`, if given.
inline Problem problem_of(const Launch& l, size_t mask) {
  const auto& attributes = l.attributes<AttentionAttributes>();
  Problem p = problem_of(attributes, l.in_shape(0), l.in_shape(1));
  p.q = {l.in(0), l.type()};
  p.k = {l.in(1), l.type()};
  p.v = {l.in(2), l.type()};
  p.k_codes = codes_of(l, 1);
  p.v_codes = codes_of(l, 2);
  switch (attributes.mask()) {
    case file::AttentionMask::none:
      break;
    case file::AttentionMask::additive: {
      const Shape& q = l.in_shape(0);
      const Strides steps =
          broadcast_strides(l.in_shape(mask), Shape{q[0], q[2], q[1], l.in_shape(1)[1]});
      p.mask.added = {l.in(mask), l.type()};
      std::copy_n(steps.begin(), 4, p.mask.steps);
      break;
    }
    case file::AttentionMask::padding:
      p.mask.shown = l.in_as<uint8_t>(mask);
      break;
    case file::AttentionMask::lengths:
      p.mask.lengths = l.in_i32(mask);
      break;
  }
  return p;
}

// The shapes of q and k of a PackedAttention or its gradient.
struct PackedShapes {
  PackedShapes(const file::PackedAttentionAttributes& t, const Shape& qkv)
      : heads(t.heads() + 2 * t.kv_heads()),
        q{qkv[0], qkv[1], t.heads(), qkv[2] / heads},
        k{qkv[0], qkv[1], t.kv_heads(), qkv[2] / heads} {}
  int64_t heads;
  Shape q, k;
};

inline Problem packed_problem(const file::PackedAttentionAttributes& t, const Shape& qkv) {
  const PackedShapes shapes(t, qkv);
  Problem p = problem_of(t, shapes.q, shapes.k);
  p.packed = static_cast<int>(shapes.heads);
  return p;
}
// The same, with the operands.
template <class T>
Problem packed_problem(const Launch& l) {
  Problem p = packed_problem(l.attributes<file::PackedAttentionAttributes>(), l.in_shape(0));
  const T* const qkv = l.in_as<T>(0);
  p.q = {qkv, l.type()};
  p.k = {qkv + int64_t{p.heads} * p.dim, l.type()};
  p.v = {qkv + int64_t{p.heads + p.kv_heads} * p.dim, l.type()};
  return p;
}

inline const char* packed_refusal(const NodeView& node) {
  const PackedShapes shapes(node.attributes<file::PackedAttentionAttributes>(), node.in(0));
  if (shapes.q[3] > kMaxHeadDim) {
    return "Attention takes heads of up to 256 elements.";
  }
  return node.in(0).rows() * shapes.heads > INT32_MAX ? "The rows of all heads are more than 2^31."
                                                      : nullptr;
}

// Sets which accesses are legal for all operands.
template <class... P>
void align(Problem& p, const P*... operands) {
  p.eight = p.dim % 8 == 0 && aligned16(operands...);
  p.four = p.dim % 4 == 0 && aligned16(operands...);
}

constexpr int64_t kFill = 128;  // number of blocks that fill a GPU

// Divides the rows of all heads into blocks of `own` rows each, and sets the number of blocks along
// the rows.
inline unsigned tile(Problem& p, bool of_keys, int own) {
  p.tiles =
      blocks_for(static_cast<uint64_t>(of_keys ? p.keys : p.queries), static_cast<uint64_t>(own));
  return p.tiles * static_cast<unsigned>(p.batches * (of_keys ? p.kv_heads : p.heads));
}

// Calls launch.operator()<head size, rounded up>().
template <class F>
void with_padded(const Problem& p, F&& launch) {
  if (p.dim <= 32) {
    launch.template operator()<32>();
  } else if (p.dim <= 64) {
    launch.template operator()<64>();
  } else if (p.dim <= 128) {
    launch.template operator()<128>();
  } else {
    launch.template operator()<256>();
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
