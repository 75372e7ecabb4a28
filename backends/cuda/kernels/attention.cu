//! ops(f32, f16, bf16) Attention AttentionGrad
// Attention with memory linear in the length, and its gradient without atomics.
//
// A block owns some rows of one head: queries, or keys in the pass for dk and dv. It iterates over
// the rows of the other kind, 64 at a time: it computes products of its rows with the other rows,
// weights from the products, and sums of the other rows times the weights.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "core/strides.h"
#include "device/codes.cuh"
#include "device/elements.cuh"
#include "device/wide.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kDown = 8;     // threads along own rows
constexpr int kAcross = 16;  // threads along other rows, or along the head
constexpr int kOthers = 64;  // other rows of a tile
constexpr int64_t kMaxHeadDim = 256;

// kPadded is the head size, rounded up. A thread owns kRows rows: the row of its index, and every
// kDown-th row from there.
template <int kPadded, int kRows>
struct Tiling {
  static constexpr int kOwn = kDown * kRows;
  static constexpr int kQuads = kPadded / 4;
  static constexpr int kQuadsEach = (kQuads + kAcross - 1) / kAcross;
  // Other rows pass through a buffer: all rows of a tile in parts of the head, or some whole rows
  // at a time.
  static constexpr int kPart = kPadded == 64 || kPadded == 128 ? 16 : 8;
  static constexpr int kLines = kOthers * kPart / kQuads;
  static constexpr int kBuffer = kOthers * kPart;
  static constexpr int kWeights = kOwn * kOthers / 4;
  static constexpr int kPerRow = kThreads / kOwn;  // threads that share a row in sums along it
};

using Quad = std::remove_extent_t<Shared<float4[1]>>;  // in shared memory

// How a mask hides keys from queries; at most one of the three is set.
struct Mask {
  // Added to the scores; -infinity hides a key. The strides are elements per batch, head, query and
  // key.
  const float* added;
  int64_t steps[4];
  const uint8_t* shown;    // [batch, keys]: 0 hides the key
  const int32_t* lengths;  // [batch]: keys before this length are visible

  __device__ bool any() const { return added != nullptr || shown != nullptr || lengths != nullptr; }
};

// The rows of one head.
struct Rows {
  const float* data;
  int64_t stride;
  int count;
  int dim;
  bool four;
  const uint8_t* shown;  // null: all rows are visible

  // Elements 4 q to 4 q + 3 of a row; 0 outside of the row, or if the row is hidden.
  __device__ float4 quad(int row, int q) const {
    if (row >= count || 4 * q >= dim || (shown != nullptr && shown[row] == 0)) {
      return make_float4(0, 0, 0, 0);
    }
    const float* const at = data + row * stride + 4 * q;
    if (four) {
      return load4(at);
    }
    const int left = dim - 4 * q;
    return make_float4(at[0], left > 1 ? at[1] : 0.0f, left > 2 ? at[2] : 0.0f,
                       left > 3 ? at[3] : 0.0f);
  }
};

struct Problem {
  const float* q;
  const float* k;
  const float* v;
  const float* o;
  const float* lse;
  const float* d_o;
  float* out;      // o, dq or dk
  float* out_v;    // dv
  float* row_out;  // lse or delta, [batch, head, query]
  const float* delta;
  int batches;
  int heads;
  int kv_heads;
  int queries;
  int keys;
  int dim;
  unsigned tiles;  // of own rows
  int part;        // keys per part of the forward pass; each part has its own `out` and `row_out`
  // Number of valid rows; all rows unless a dynamic dimension is smaller. A query behind the
  // current size sees no key.
  int live_queries;
  int live_keys;
  const uint32_t* query_count;
  const uint32_t* key_count;
  int seen_keys;  // visible keys of the current batch element, limited by lengths
  bool causal;
  bool four;
  int window;  // maximum number of visible keys per query; 0: no limit
  float scale;
  float softcap;  // 0: no soft-capping
  Mask mask;

  __device__ int64_t start(int64_t batch, int count, int of_heads, int head) const {
    return (batch * count * of_heads + head) * dim;
  }
  __device__ Rows of_queries(const float* from, int64_t batch, int head) const {
    return {from + start(batch, queries, heads, head),
            int64_t{heads} * dim,
            queries,
            dim,
            four,
            nullptr};
  }
  __device__ Rows of_keys(const float* from, int64_t batch, int head) const {
    return {from + start(batch, keys, kv_heads, head),
            int64_t{kv_heads} * dim,
            seen_keys,
            dim,
            four,
            mask.shown == nullptr ? nullptr : mask.shown + batch * keys};
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
  // A score after masking: -infinity if the query does not see the key, even if the score is NaN.
  __device__ float masked(float score, int64_t batch, int head, int query, int key) const {
    if (mask.shown != nullptr && mask.shown[batch * keys + key] == 0) {
      return -INFINITY;
    }
    if (mask.added != nullptr) {
      const float added = mask.added[batch * mask.steps[0] + head * mask.steps[1] +
                                     query * mask.steps[2] + key * mask.steps[3]];
      return added == -INFINITY ? added : score + added;
    }
    return score;
  }
};

template <class T>
__device__ void load_own(Quad* own, const Rows& rows, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < T::kOwn * T::kQuads; i += kThreads) {
    own[i] = rows.quad(first + i / T::kQuads, i % T::kQuads);
  }
}

__device__ inline float dot(float4 a, float4 b, float sum) {
  sum += a.x * b.x;
  sum += a.y * b.y;
  sum += a.z * b.z;
  sum += a.w * b.w;
  return sum;
}

// With kSkip, a weight of 0 adds nothing, whatever v is.
template <bool kSkip>
__device__ inline void add(float4& sum, float weight, float4 v) {
  if (kSkip && weight == 0) {
    return;
  }
  sum.x += weight * v.x;
  sum.y += weight * v.y;
  sum.z += weight * v.z;
  sum.w += weight * v.w;
}

// dots[i][j] = own row i of this thread times row first + 4 across + j. Starts with a barrier.
template <class T, int kRows>
__device__ void multiply(const Quad* own, Quad* buffer, const Rows& others, int first,
                         float (&dots)[kRows][4]) {
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 4; ++j) {
      dots[i][j] = 0;
    }
  }
  const int quads = (others.dim + 3) / 4;
  for (int q0 = 0; q0 < quads; q0 += T::kPart) {
    __syncthreads();
    // Permuted, so that neighbouring threads, 4 rows apart, use different banks.
    for (int i = static_cast<int>(threadIdx.x); i < T::kBuffer; i += kThreads) {
      const int row = i / T::kPart;
      const int q = i % T::kPart;
      buffer[row * T::kPart + (q ^ (row / 4 % 8))] = others.quad(first + row, q0 + q);
    }
    __syncthreads();
    const int count = min(T::kPart, quads - q0);
    for (int q = 0; q < count; ++q) {
      float4 mine[kRows];
      for (int i = 0; i < kRows; ++i) {
        mine[i] = own[(down + kDown * i) * T::kQuads + q0 + q];
      }
      for (int j = 0; j < 4; ++j) {
        const float4 other = buffer[(4 * across + j) * T::kPart + (q ^ (across % 8))];
        for (int i = 0; i < kRows; ++i) {
          dots[i][j] = dot(mine[i], other, dots[i][j]);
        }
      }
    }
  }
}

// sums[i][c] += rows [first, min(first + kOthers, end)), each times its weight in own row i, for
// quad across + kAcross c of the head. Starts with a barrier.
template <class T, bool kSkip, int kRows>
__device__ void add_rows_as(const Quad* weights, Quad* buffer, const Rows& others, int first,
                            int end, float4 (&sums)[kRows][T::kQuadsEach]) {
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  for (int line = 0; line < kOthers && first + line < end; line += T::kLines) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < T::kBuffer; i += kThreads) {
      buffer[i] = others.quad(first + line + i / T::kQuads, i % T::kQuads);
    }
    __syncthreads();
    for (int j = 0; j < T::kLines; j += 4) {
      float4 w[kRows];
      for (int i = 0; i < kRows; ++i) {
        w[i] = weights[(down + kDown * i) * (kOthers / 4) + (line + j) / 4];
      }
      for (int c = 0; c < T::kQuadsEach; ++c) {
        const int q = across + kAcross * c;
        if (q >= T::kQuads) {
          continue;
        }
        const float4 v0 = buffer[j * T::kQuads + q];
        const float4 v1 = buffer[(j + 1) * T::kQuads + q];
        const float4 v2 = buffer[(j + 2) * T::kQuads + q];
        const float4 v3 = buffer[(j + 3) * T::kQuads + q];
        for (int i = 0; i < kRows; ++i) {
          add<kSkip>(sums[i][c], w[i].x, v0);
          add<kSkip>(sums[i][c], w[i].y, v1);
          add<kSkip>(sums[i][c], w[i].z, v2);
          add<kSkip>(sums[i][c], w[i].w, v3);
        }
      }
    }
  }
}

// `skip` is the same for all threads.
template <class T, int kRows>
__device__ void add_rows(const Quad* weights, Quad* buffer, const Rows& others, int first, int end,
                         float4 (&sums)[kRows][T::kQuadsEach], bool skip) {
  if (skip) {
    add_rows_as<T, true>(weights, buffer, others, first, end, sums);
  } else {
    add_rows_as<T, false>(weights, buffer, others, first, end, sums);
  }
}

template <class T, int kRows>
__device__ void clear(float4 (&sums)[kRows][T::kQuadsEach]) {
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < T::kQuadsEach; ++c) {
      sums[i][c] = make_float4(0, 0, 0, 0);
    }
  }
}

// Writes the sums of the own rows to `rows`.
template <class T, int kRows>
__device__ void write(const Rows& rows, float* to, int first,
                      const float4 (&sums)[kRows][T::kQuadsEach]) {
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  for (int i = 0; i < kRows; ++i) {
    const int row = first + down + kDown * i;
    for (int c = 0; c < T::kQuadsEach; ++c) {
      const int d = 4 * (across + kAcross * c);
      if (row >= rows.count || d >= rows.dim) {
        continue;
      }
      float* const at = to + row * rows.stride + d;
      const float4 v = sums[i][c];
      if (rows.four) {
        store4(at, v);
        continue;
      }
      const int left = rows.dim - d;
      at[0] = v.x;
      if (left > 1) {
        at[1] = v.y;
      }
      if (left > 2) {
        at[2] = v.z;
      }
      if (left > 3) {
        at[3] = v.w;
      }
    }
  }
}

// The own rows of a block. The last rows come first, because they take longest with causal masking.
struct Place {
  int first;
  int head;
  int64_t batch;
  __device__ Place(unsigned tiles, int own, int heads)
      : first(static_cast<int>(tiles - 1 - blockIdx.x % tiles) * own),
        head(static_cast<int>(blockIdx.x / tiles % static_cast<unsigned>(heads))),
        batch(blockIdx.x / tiles / static_cast<unsigned>(heads)) {}
};

template <int kPadded, int kRows>
__global__ void __launch_bounds__(kThreads) attention_kernel(Problem p) {
  using T = Tiling<kPadded, kRows>;
  __shared__ Shared<float4[T::kOwn * T::kQuads]> own;
  __shared__ Shared<float4[T::kBuffer]> buffer;
  __shared__ Shared<float4[T::kWeights]> weights;
  __shared__ Shared<float[T::kOwn]> factor;
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  // Sums along a row of weights.
  const int row = static_cast<int>(threadIdx.x) / T::kPerRow;
  const int part = static_cast<int>(threadIdx.x) % T::kPerRow;

  const Place place(p.tiles, T::kOwn, p.heads);
  p.read_counts(place.batch);
  const Rows queries = p.of_queries(p.q, place.batch, place.head);
  const int kv_head = place.head / (p.heads / p.kv_heads);
  const Rows keys = p.of_keys(p.k, place.batch, kv_head);
  const Rows values = p.of_keys(p.v, place.batch, kv_head);
  load_own<T>(own, queries, place.first);

  float4 sums[kRows][T::kQuadsEach];
  clear<T>(sums);
  float top = -INFINITY;  // of the row so far
  float sum = 0;          // of exp(s - top)
  const int part_begin = static_cast<int>(blockIdx.y) * p.part;
  const int begin = max(part_begin, p.first_key(place.first) / kOthers * kOthers);
  const int last = min(place.first + T::kOwn, p.live_queries) - 1;
  const int end = last < place.first ? 0 : min(p.seen(last), part_begin + p.part);
  for (int first = begin; first < end; first += kOthers) {
    float dots[kRows][4];
    multiply<T>(own, buffer, keys, first, dots);
    for (int i = 0; i < kRows; ++i) {
      const int query = place.first + down + kDown * i;
      const int left = p.seen(query) - (first + 4 * across);
      const int hidden = p.first_key(query) - (first + 4 * across);
      float s[4];
      for (int j = 0; j < 4; ++j) {
        s[j] = hidden <= j && j < left ? p.masked(p.capped(p.scale * dots[i][j]), place.batch,
                                                  place.head, query, first + 4 * across + j)
                                       : -INFINITY;
      }
      weights[(down + kDown * i) * (kOthers / 4) + across] = make_float4(s[0], s[1], s[2], s[3]);
    }
    __syncthreads();
    constexpr int kEach = kOthers / 4 / T::kPerRow;
    float4 s[kEach];
    float new_top = top;
    for (int c = 0; c < kEach; ++c) {
      s[c] = weights[row * (kOthers / 4) + part + T::kPerRow * c];
      new_top = fmaxf(new_top, fmaxf(fmaxf(s[c].x, s[c].y), fmaxf(s[c].z, s[c].w)));
    }
    for (int other = 1; other < T::kPerRow; other *= 2) {
      new_top = fmaxf(new_top, __shfl_xor_sync(0xFFFFFFFF, new_top, other));
    }
    const float shift = new_top == -INFINITY ? 0.0f : new_top;
    const float scaled = new_top == top ? 1.0f : expf(top - shift);
    float more = 0;
    for (int c = 0; c < kEach; ++c) {
      const float4 e = make_float4(expf(s[c].x - shift), expf(s[c].y - shift), expf(s[c].z - shift),
                                   expf(s[c].w - shift));
      weights[row * (kOthers / 4) + part + T::kPerRow * c] = e;
      more += (e.x + e.y) + (e.z + e.w);
    }
    for (int other = 1; other < T::kPerRow; other *= 2) {
      more += __shfl_xor_sync(0xFFFFFFFF, more, other);
    }
    sum = sum * scaled + more;
    top = new_top;
    if (part == 0) {
      factor[row] = scaled;
    }
    __syncthreads();
    for (int i = 0; i < kRows; ++i) {
      const float f = factor[down + kDown * i];
      for (int c = 0; c < T::kQuadsEach; ++c) {
        sums[i][c] =
            make_float4(f * sums[i][c].x, f * sums[i][c].y, f * sums[i][c].z, f * sums[i][c].w);
      }
    }
    add_rows<T>(weights, buffer, values, first, end, sums, p.mask.any());
  }
  if (part == 0) {
    factor[row] = sum == 0 ? 0.0f : 1.0f / sum;
    const int query = place.first + row;
    if (query < p.queries) {
      p.row_out[blockIdx.y * p.rows() + (place.batch * p.heads + place.head) * p.queries + query] =
          sum == 0 ? -INFINITY : top + logf(sum);
    }
  }
  __syncthreads();
  for (int i = 0; i < kRows; ++i) {
    const float f = factor[down + kDown * i];
    for (int c = 0; c < T::kQuadsEach; ++c) {
      sums[i][c] =
          make_float4(f * sums[i][c].x, f * sums[i][c].y, f * sums[i][c].z, f * sums[i][c].w);
    }
  }
  write<T>(
      queries,
      p.out + blockIdx.y * p.rows() * p.dim + p.start(place.batch, p.queries, p.heads, place.head),
      place.first, sums);
}

// Combines the parts: adds their results, weighted by exp(lse).
__global__ void join_kernel(const float* outs, const float* lses, int parts, float* out, float* lse,
                            Problem p) {
  const int64_t rows = p.rows();
  const int64_t count = rows * p.dim;
  for_elements(
      static_cast<uint64_t>(count), false,
      [&](uint64_t element) {
        const auto i = static_cast<int64_t>(element);
        const int64_t row = i / p.dim;  // [batch, query, head]
        const int64_t query = row / p.heads;
        const int64_t at =
            (query / p.queries * p.heads + row % p.heads) * p.queries + query % p.queries;
        float top = -INFINITY;
        for (int part = 0; part < parts; ++part) {
          top = fmaxf(top, lses[part * rows + at]);
        }
        float sum = 0;
        float weights = 0;
        for (int part = 0; part < parts; ++part) {
          const float l = lses[part * rows + at];
          const float weight = l == -INFINITY ? 0.0f : expf(l - top);
          weights += weight;
          sum += weight * outs[part * count + i];
        }
        out[i] = weights == 0 ? 0.0f : sum / weights;
        if (i % p.dim == 0) {
          lse[at] = weights == 0 ? -INFINITY : top + logf(weights);
        }
      },
      [](uint64_t) {});
}

// The gradient with respect to the own rows. For queries: delta, then dq. For keys: dk and dv, over
// all query heads that read the key head.
template <int kPadded, int kRows, bool kKeys>
__global__ void __launch_bounds__(kThreads) attention_grad_kernel(Problem p) {
  using T = Tiling<kPadded, kRows>;
  __shared__ Shared<float4[T::kOwn * T::kQuads]> own;    // q or k
  __shared__ Shared<float4[T::kOwn * T::kQuads]> own_d;  // dout or v
  __shared__ Shared<float4[T::kBuffer]> buffer;
  __shared__ Shared<float4[T::kWeights]> weights;
  constexpr int kStatistics = kKeys ? kOthers : T::kOwn;  // current queries
  __shared__ Shared<float[kStatistics]> lse;
  __shared__ Shared<float[kStatistics]> delta;
  const int thread = static_cast<int>(threadIdx.x);
  const int down = thread / kAcross;
  const int across = thread % kAcross;

  const Place place(p.tiles, T::kOwn, kKeys ? p.kv_heads : p.heads);
  p.read_counts(place.batch);
  const bool skip = p.mask.any();
  const int group = p.heads / p.kv_heads;
  const int kv_head = kKeys ? place.head : place.head / group;
  const Rows keys = p.of_keys(p.k, place.batch, kv_head);
  const Rows values = p.of_keys(p.v, place.batch, kv_head);
  load_own<T>(own, kKeys ? keys : p.of_queries(p.q, place.batch, place.head), place.first);
  load_own<T>(own_d, kKeys ? values : p.of_queries(p.d_o, place.batch, place.head), place.first);

  if (!kKeys) {
    __syncthreads();
    const Rows out = p.of_queries(p.o, place.batch, place.head);
    const int row = thread / T::kPerRow;
    const int query = place.first + row;
    float sum = 0;
    for (int q = thread % T::kPerRow; q < T::kQuads; q += T::kPerRow) {
      sum = dot(own_d[row * T::kQuads + q], out.quad(query, q), sum);
    }
    for (int other = 1; other < T::kPerRow; other *= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, other);
    }
    if (thread % T::kPerRow == 0) {
      const int64_t at = (place.batch * p.heads + place.head) * p.queries + query;
      delta[row] = sum;
      lse[row] = query < p.queries ? p.lse[at] : 0.0f;
      if (query < p.queries) {
        p.row_out[at] = sum;
      }
    }
  }

  float4 sums[kRows][T::kQuadsEach];
  float4 sums_v[kRows][T::kQuadsEach];
  clear<T>(sums);
  clear<T>(sums_v);
  const int earliest = kKeys && p.causal ? max(0, place.first - (p.keys - p.queries))
                       : kKeys           ? 0
                                         : p.first_key(place.first);
  const int begin = earliest / kOthers * kOthers;
  const int end = kKeys ? p.end_of_queries(min(place.first + T::kOwn, p.keys) - 1)
                        : p.seen(min(place.first + T::kOwn, p.queries) - 1);
  for (int g = 0; g < (kKeys ? group : 1); ++g) {
    const int head = kKeys ? place.head * group + g : place.head;
    const Rows others = kKeys ? p.of_queries(p.q, place.batch, head) : keys;
    const Rows others_d = kKeys ? p.of_queries(p.d_o, place.batch, head) : values;
    for (int first = begin; first < end; first += kOthers) {
      if (kKeys && thread < kOthers) {
        const int query = first + thread;
        const int64_t at = (place.batch * p.heads + head) * p.queries + query;
        lse[thread] = query < p.queries ? p.lse[at] : 0.0f;
        delta[thread] = query < p.queries ? p.delta[at] : 0.0f;
      }
      float s[kRows][4];
      float ds[kRows][4];
      multiply<T>(own, buffer, others, first, s);
      multiply<T>(own_d, buffer, others_d, first, ds);
      for (int i = 0; i < kRows; ++i) {
        const int mine = down + kDown * i;
        for (int j = 0; j < 4; ++j) {
          const int other = 4 * across + j;
          const int query = kKeys ? first + other : place.first + mine;
          const int key = kKeys ? place.first + mine : first + other;
          const int statistic = kKeys ? other : mine;
          bool sees = query < p.queries && key < p.seen(query) && key >= p.first_key(query);
          const float capped = p.capped(p.scale * s[i][j]);
          const float score = sees ? p.masked(capped, place.batch, head, query, key) : -INFINITY;
          sees = sees && !(skip && score == -INFINITY);
          s[i][j] = sees ? expf(score - lse[statistic]) : 0.0f;
          ds[i][j] =
              sees ? p.scale * p.cap_slope(capped) * s[i][j] * (ds[i][j] - delta[statistic]) : 0.0f;
        }
      }
      if (kKeys) {
        for (int i = 0; i < kRows; ++i) {
          weights[(down + kDown * i) * (kOthers / 4) + across] =
              make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
        }
        add_rows<T>(weights, buffer, others_d, first, end, sums_v, skip);
        __syncthreads();
      }
      for (int i = 0; i < kRows; ++i) {
        weights[(down + kDown * i) * (kOthers / 4) + across] =
            make_float4(ds[i][0], ds[i][1], ds[i][2], ds[i][3]);
      }
      add_rows<T>(weights, buffer, others, first, end, sums, skip);
    }
  }
  Rows to = kKeys ? keys : p.of_queries(p.q, place.batch, place.head);
  to.count = kKeys ? p.keys : p.queries;
  const int64_t start = kKeys ? p.start(place.batch, p.keys, p.kv_heads, place.head)
                              : p.start(place.batch, p.queries, p.heads, place.head);
  write<T>(to, p.out + start, place.first, sums);
  if (kKeys) {
    write<T>(to, p.out_v + start, place.first, sums_v);
  }
}

// Dequantizes rows of keys or values to f32. A batch element has `keys` rows of `inner` elements;
// only rows before the current size are valid.
__global__ void decode_kernel(Codes from, float* to, const uint32_t* count_at, uint64_t n, int keys,
                              uint64_t inner) {
  for_elements(
      n, false,
      [&](uint64_t i) {
        const uint64_t key = i / inner % static_cast<uint64_t>(keys);
        if (count_at == nullptr || key < *count_at) {
          const auto columns = static_cast<uint64_t>(from.columns);
          to[i] =
              decode(from, static_cast<int64_t>(i / columns), static_cast<uint32_t>(i % columns));
        }
      },
      [](uint64_t) {});
}

// Reports a length that is out of range.
__global__ void check_lengths_kernel(const int32_t* lengths, int count, int keys,
                                     device::StepHead* head, uint32_t node) {
  for_elements(
      static_cast<uint64_t>(count), false,
      [&](uint64_t i) {
        if (lengths[i] < 0 || lengths[i] > keys) {
          bad_index(head, node, lengths[i]);
        }
      },
      [](uint64_t) {});
}

const char* refusal(const NodeView& node) {
  const Shape& q = node.in(0);
  const Shape& k = node.in(1);
  if (q[3] > kMaxHeadDim) {
    return "Attention takes heads of up to 256 elements.";
  }
  const double rows = static_cast<double>(q[0]) * static_cast<double>(q[2]) *
                      static_cast<double>(std::max(q[1], k[1]));
  return rows > INT32_MAX ? "The rows of all heads are more than 2^31." : nullptr;
}

Problem problem_of(const AttentionAttributes& attributes, const Shape& q, const Shape& k) {
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
Problem problem_of(const Launch& l, const Wide& wide, size_t mask) {
  const auto& attributes = l.attributes<AttentionAttributes>();
  Problem p = problem_of(attributes, l.in_shape(0), l.in_shape(1));
  p.q = wide.in(0);
  p.k = wide.in(1);
  p.v = wide.in(2);
  switch (attributes.mask()) {
    case file::AttentionMask::none:
      break;
    case file::AttentionMask::additive: {
      const Shape& q = l.in_shape(0);
      const Strides steps =
          broadcast_strides(l.in_shape(mask), Shape{q[0], q[2], q[1], l.in_shape(1)[1]});
      p.mask.added = wide.in(mask);
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

constexpr int64_t kFill = 128;  // number of blocks that fill a GPU

// Divides the rows of all heads into blocks of `own` rows each, and sets the number of blocks along
// the rows.
unsigned tile(Problem& p, bool of_keys, int own) {
  p.tiles =
      blocks_for(static_cast<uint64_t>(of_keys ? p.keys : p.queries), static_cast<uint64_t>(own));
  return p.tiles * static_cast<unsigned>(p.batches * (of_keys ? p.kv_heads : p.heads));
}

// The number of parts of the keys, if few queries see many keys. Sets the keys per part.
int parts_of(Problem& p) {
  constexpr int64_t kSmallest = 128;  // keys per part
  constexpr int64_t kMaxBytes = int64_t{8} << 20;
  Problem small = p;
  const int64_t blocks = tile(small, false, 2 * kDown);
  if (blocks == 0 || blocks >= kFill) {
    return 1;
  }
  const int64_t parts =
      std::min({2 * kFill / blocks, p.keys / kSmallest, kMaxBytes / (p.rows() * (p.dim + 1) * 4)});
  if (parts <= 1) {
    return 1;
  }
  p.part = static_cast<int>((p.keys + parts * kOthers - 1) / (parts * kOthers)) * kOthers;
  return (p.keys + p.part - 1) / p.part;
}

// Floats of dequantized keys or values.
uint64_t decoded_floats(const device::Operand& o) {
  return o.encoding.is_plain() ? 0 : round_up(static_cast<uint64_t>(o.shape.elements()), 64);
}

uint64_t attention_workspace(const NodeView& node) {
  Problem p = problem_of(node.attributes<AttentionAttributes>(), node.in(0), node.in(1));
  const int parts = parts_of(p);
  const std::span<const device::Operand> in = node.query.inputs;
  return Wide::bytes(node) + (decoded_floats(in[1]) + decoded_floats(in[2])) * sizeof(float) +
         (parts == 1 ? 0 : static_cast<uint64_t>(parts * p.rows() * (p.dim + 1)) * 4);
}

// The address of input i in f32. A quantized input is dequantized into the workspace, and
// `workspace` moves behind it.
const float* numbers_of(Launch& l, size_t i, const float* plain, float*& workspace) {
  if (!l.is_encoded(i)) {
    return plain;
  }
  const Shape& shape = l.in_shape(i);
  const auto n = static_cast<uint64_t>(shape.elements());
  float* const to = workspace;
  l.launch("attention decode", decode_kernel, element_blocks(n), kElementThreads, codes_of(l, i),
           to, l.count(i, 1), n, static_cast<int>(shape[1]),
           static_cast<uint64_t>(shape.elements(2, 4)));
  workspace += decoded_floats(l.in_operand(i));
  return to;
}

template <int kPadded, int kRows>
void launch_attention(Launch& l, Problem p, int parts) {
  const unsigned blocks = tile(p, false, Tiling<kPadded, kRows>::kOwn);
  l.launch("attention", attention_kernel<kPadded, kRows>,
           dim3(blocks, static_cast<unsigned>(parts)), kThreads, p);
}

// With enough rows, a block takes many rows, for less traffic; otherwise few rows, for more blocks.
template <int kPadded>
void choose_attention(Launch& l, Problem p, int parts) {
  if (tile(p, false, Tiling<kPadded, 4>::kOwn) >= kFill) {
    launch_attention<kPadded, 4>(l, p, parts);
  } else {
    launch_attention<kPadded, 2>(l, p, parts);
  }
}

void attention(Launch& l) {
  Wide wide(l);
  Problem p = problem_of(l, wide, 3);
  if (p.mask.lengths != nullptr) {
    l.launch("attention lengths", check_lengths_kernel,
             element_blocks(static_cast<uint64_t>(p.batches)), kElementThreads, p.mask.lengths,
             p.batches, p.keys, l.head(), l.node());
  }
  p.query_count = l.count(0, 1);
  p.key_count = l.count(1, 1);
  float* workspace = wide.workspace();
  p.k = numbers_of(l, 1, p.k, workspace);
  p.v = numbers_of(l, 2, p.v, workspace);
  const int parts = parts_of(p);
  p.out = parts == 1 ? wide.out(0) : workspace;
  p.row_out = parts == 1 ? wide.out(1) : workspace + parts * p.rows() * p.dim;
  p.four = p.dim % 4 == 0 && aligned16(p.q, p.k, p.v, p.out);
  if (p.dim <= 32) {
    choose_attention<32>(l, p, parts);
  } else if (p.dim <= 64) {
    choose_attention<64>(l, p, parts);
  } else if (p.dim <= 128) {
    choose_attention<128>(l, p, parts);
  } else {
    launch_attention<256, 2>(l, p, parts);
  }
  if (parts > 1) {
    l.launch("attention join", join_kernel, element_blocks(static_cast<uint64_t>(p.rows() * p.dim)),
             kElementThreads, p.out, p.row_out, parts, wide.out(0), wide.out(1), p);
  }
  wide.finish();
}

template <int kPadded, int kRows, bool kKeys>
void launch_grad(Launch& l, Problem p) {
  const unsigned blocks = tile(p, kKeys, Tiling<kPadded, kRows>::kOwn);
  l.launch(kKeys ? "attention_grad keys" : "attention_grad queries",
           attention_grad_kernel<kPadded, kRows, kKeys>, blocks, kThreads, p);
}

template <int kPadded, bool kKeys>
void choose_grad(Launch& l, Problem p) {
  if (tile(p, kKeys, Tiling<kPadded, 4>::kOwn) >= kFill) {
    launch_grad<kPadded, 4, kKeys>(l, p);
  } else {
    launch_grad<kPadded, 2, kKeys>(l, p);
  }
}

template <bool kKeys>
void grad_pass(Launch& l, const Problem& p) {
  if (p.dim <= 32) {
    choose_grad<32, kKeys>(l, p);
  } else if (p.dim <= 64) {
    choose_grad<64, kKeys>(l, p);
  } else if (p.dim <= 128) {
    launch_grad<128, 2, kKeys>(l, p);
  } else {
    launch_grad<256, 2, kKeys>(l, p);
  }
}

uint64_t grad_workspace(const NodeView& node) {
  // delta has the size of lse
  return Wide::bytes(node) + static_cast<uint64_t>(node.in(4).elements()) * 4;
}

void attention_grad(Launch& l) {
  Wide wide(l);
  Problem p = problem_of(l, wide, 6);
  p.o = wide.in(3);
  p.lse = wide.in(4);
  p.d_o = wide.in(5);
  p.four =
      p.dim % 4 == 0 && aligned16(p.q, p.k, p.v, p.o, p.d_o, wide.out(0), wide.out(1), wide.out(2));
  p.out = wide.out(0);
  p.row_out = wide.workspace();
  grad_pass<false>(l, p);
  p.out = wide.out(1);
  p.out_v = wide.out(2);
  p.delta = wide.workspace();
  grad_pass<true>(l, p);
  wide.finish();
}

}  // namespace

BOWLINE_CUDA_KERNELS(attention, .run = attention, .workspace = attention_workspace,
                     .refusal = refusal, .encoded = 0b110);
BOWLINE_CUDA_KERNELS(attention_grad, .run = attention_grad, .workspace = grad_workspace,
                     .refusal = refusal);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
