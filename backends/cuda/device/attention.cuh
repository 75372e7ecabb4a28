// Shared by attention and its gradient: the division of work, masks, and loops over tiles.
//
// A block owns some rows of one head: queries, or keys in the pass for dk and dv. It iterates over
// the rows of the other kind, 64 at a time: it computes products of its rows with the other rows,
// weights from the products, and sums of the other rows times the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "core/strides.h"
#include "device/elements.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {

constexpr int kThreads = 128;
constexpr int kDown = 8;     // threads along own rows
constexpr int kAcross = 16;  // threads along other rows, or along the head
constexpr int kOthers = 64;  // other rows per tile
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

inline Problem problem_of(const AttentionAttributes& attributes, const Shape& q, const Shape& k) {
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
inline Problem problem_of(const Launch& l, const Wide& wide, size_t mask) {
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
inline unsigned tile(Problem& p, bool of_keys, int own) {
  p.tiles =
      blocks_for(static_cast<uint64_t>(of_keys ? p.keys : p.queries), static_cast<uint64_t>(own));
  return p.tiles * static_cast<unsigned>(p.batches * (of_keys ? p.kv_heads : p.heads));
}

// Calls launch.operator()<head size, rounded up; rows of a thread>(). With enough rows, a block
// takes four rows per thread, for less traffic; otherwise two, for more blocks. Heads above
// kMostOfFour have no space for four.
template <int kMostOfFour, class F>
void with_tiling(const Problem& p, bool of_keys, F&& launch) {
  const auto choose = [&]<int kPadded>() {
    if constexpr (kPadded <= kMostOfFour) {
      Problem tiled = p;
      if (tile(tiled, of_keys, 4 * kDown) >= kFill) {
        return launch.template operator()<kPadded, 4>();
      }
    }
    launch.template operator()<kPadded, 2>();
  };
  if (p.dim <= 32) {
    choose.template operator()<32>();
  } else if (p.dim <= 64) {
    choose.template operator()<64>();
  } else if (p.dim <= 128) {
    choose.template operator()<128>();
  } else {
    choose.template operator()<256>();
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
