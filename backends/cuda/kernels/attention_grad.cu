//! ops(f32, f16, bf16) AttentionGrad PackedAttentionGrad
// The gradient of attention without atomics: a pass over queries for dq, and a pass over keys for
// dk and dv. Both run on tensor cores (device/attention_mma.cuh) or in f32 arithmetic
// (device/attention_tiles.cuh).
#include "device/attention_mma.cuh"
#include "device/attention_tiles.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels {
namespace {

using namespace attention_kernels;

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
  const Rows keys = p.keys_of(place.batch, kv_head);
  const Rows values = p.values_of(place.batch, kv_head);
  load_own<T>(own, kKeys ? keys : p.queries_of(place.batch, place.head), place.first);
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
    const Rows others = kKeys ? p.queries_of(place.batch, head) : keys;
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
  Rows to = kKeys ? keys : p.queries_of(place.batch, place.head);
  to.count = kKeys ? p.keys : p.queries;
  write<T>(to, p.out, place.first, sums);
  if (kKeys) {
    write<T>(to, p.out_v, place.first, sums_v);
  }
}

// Tiles of the passes on tensor cores. A block sums up kColumns columns of the head: blockIdx.y
// tells which. The pass over keys sums up both dk and dv.
template <int kPadded, bool kKeys>
struct GradTiling {
  static constexpr int kOwn = 16 * kMmaWarps;
  static constexpr int kOthers = kPadded <= 64 ? 64 : kKeys || kPadded > 128 ? 32 : 64;
  static constexpr int kStages = kPadded <= 64 ? 2 : 1;  // tiles of other rows in flight
  static constexpr int kColumns = std::min(kPadded, kMostColumns / (kKeys ? 2 : 1));
  static constexpr int kPacks = kPadded / 8;
  static constexpr int kQueries = kKeys ? kStages * kOthers : kOwn;  // with statistics
  static constexpr unsigned kShared =
      16 * 2 * (kOwn + kStages * kOthers) * kPacks + 4 * (2 * kQueries + 2 * kOthers);
};

// Values of queries in shared memory: lse in units of ln 2, and delta times the scale.
struct Statistics {
  Packs lse;
  Packs delta;

  __device__ Statistics from(int query) const {
    return {lse.from(query / 4), delta.from(query / 4)};
  }
  __device__ void store(const Problem& p, int query, float its_lse, float its_delta) const {
    // A query that sees no key has only hidden scores.
    const float shift = its_lse == -INFINITY ? 0.0f : its_lse * kLog2E;
    lse.store_word(query, __float_as_uint(shift));
    delta.store_word(query, __float_as_uint(its_delta * p.scale));
  }
};

// Loads lse and computes delta of the queries of the block; delta goes to memory, too. Some threads
// share a query.
template <int kOwn>
__device__ void load_statistics(const Problem& p, const Place& place, const Statistics& to) {
  constexpr int kPerRow = kMmaThreads / kOwn;
  const Rows d_out = p.of_queries(p.d_o, place.batch, place.head);
  const Rows out = p.of_queries(p.o, place.batch, place.head);
  const int row = static_cast<int>(threadIdx.x) / kPerRow;
  const int part = static_cast<int>(threadIdx.x) % kPerRow;
  const int query = place.first + row;
  float sum = 0;
  for (int q = part; 4 * q < p.dim; q += kPerRow) {
    const float4 a = d_out.quad(query, q);
    const float4 b = out.quad(query, q);
    sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
  }
  for (int other = 1; other < kPerRow; other *= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, other);
  }
  if (part == 0) {
    const int64_t at = (place.batch * p.heads + place.head) * p.queries + query;
    to.store(p, row, query < p.queries ? p.lse[at] : 0.0f, sum);
    if (query < p.queries) {
      p.row_out[at] = sum;
    }
  }
}

// Replaces products q k by weights p, and products dout v by ds. `statistics` are those of the
// queries: of the warp, or of the tile.
template <bool kKeys, int kColumns>
__device__ void weigh(const Problem& p, const Lane& l, const Corner& at,
                      const Statistics& statistics, Block<kColumns>& s, Block<kColumns>& ds) {
  const int last_own = at.own + 15;
  const int last_other = at.other + 8 * kColumns - 1;
  const bool whole = kKeys ? p.sees_all(at.other, last_other, at.own, last_own)
                           : p.sees_all(at.own, last_own, at.other, last_other);
  const auto row = [&](int query) { return query - (kKeys ? at.other : at.own); };
  for_scores<kKeys>(l, at, ds, [&](float& x, int query, int) {
    x = fmaf(x, p.scale, -__uint_as_float(statistics.delta.load_word(row(query))));
  });
  float factor = p.scale * kLog2E;
  if (!whole) {
    if (p.softcap != 0) {
      for_both(s, ds, [&](float& x, float& dx) {
        x = p.capped(p.scale * x);
        dx *= p.cap_slope(x);
      });
      factor = kLog2E;
    }
    for_both(s, s, [&](float& x, float&) { x *= factor; });
    hide<kKeys>(p, at, s);
    for_both(s, ds, [](float& x, float& dx) { dx = x == -INFINITY ? 0.0f : dx; });
    factor = 1;
  }
  const auto weight = [&](float x, int query) {
    return power_of_two(fmaf(x, factor, -__uint_as_float(statistics.lse.load_word(row(query)))));
  };
  if (whole) {
    for_scores<kKeys>(l, at, s, [&](float& x, int query, int) { x = weight(x, query); });
  } else {
    for_scores<kKeys>(
        l, at, s, [&](float& x, int query, int) { x = x == -INFINITY ? 0.0f : weight(x, query); });
  }
  for_both(s, ds, [](float& x, float& dx) { dx *= x; });
}

// The gradient with respect to 64 queries of a head, on tensor cores.
template <class T, int kPadded>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks) mma_queries_kernel(Problem p) {
  using M = GradTiling<kPadded, false>;
  const Lane l(static_cast<int>(threadIdx.x));
  const Tile<T, kPadded> own{dynamic_shared()};
  const Tile<T, kPadded> own_d{own.packs.from(M::kOwn * M::kPacks)};
  const Packs others = own_d.packs.from(M::kOwn * M::kPacks);
  const Packs lse = others.from(2 * M::kStages * M::kOthers * M::kPacks);
  const Statistics statistics{lse, lse.from(M::kOwn / 4)};
  const Packs flags = lse.from(M::kOwn / 2);
  const auto tile = [&](int first, bool d) {
    const int stage = 2 * (first / M::kOthers % M::kStages) + (d ? 1 : 0);
    return Tile<T, kPadded>{others.from(stage * M::kOthers * M::kPacks)};
  };
  const Place place(p.tiles, M::kOwn, p.heads);
  p.read_counts(place.batch);
  const Rows queries = p.queries_of(place.batch, place.head);
  const int kv_head = place.head / (p.heads / p.kv_heads);
  const Rows keys = p.keys_of(place.batch, kv_head);
  const Rows values = p.values_of(place.batch, kv_head);
  const int row = 16 * l.warp;
  const int query = place.first + row;
  const int last_query = min(query + 16, p.queries) - 1;
  const int begin = p.first_key(place.first) / M::kOthers * M::kOthers;
  const int end = p.seen(min(place.first + M::kOwn, p.queries) - 1);
  const auto copy = [&](int first) {
    if (first < end) {
      tile(first, false).template copy<M::kOthers>(keys, first);
      tile(first, true).template copy<M::kOthers>(values, first);
    }
    commit_copies();
  };
  own.template copy<M::kOwn>(queries, place.first);
  own_d.template copy<M::kOwn>(p.of_queries(p.d_o, place.batch, place.head), place.first);
  load_statistics<M::kOwn>(p, place, statistics);
  copy(begin);

  const int first_step = static_cast<int>(blockIdx.y) * M::kColumns / 16;
  Block<M::kColumns / 8> sums;
  Scale<T> scale;
  for (int first = begin; first < end; first += M::kOthers) {
    if (M::kStages == 2) {
      copy(first + M::kOthers);
    }
    wait_copies<M::kStages - 1>();
    __syncthreads();
    const bool sees = last_query >= query && first < p.seen(last_query) &&
                      first + M::kOthers > p.first_key(query);
    Block<M::kOthers / 8> s;
    Block<M::kOthers / 8> ds;
    if (sees) {
      multiply(l, own, row, tile(first, false), s);
      multiply(l, own_d, row, tile(first, true), ds);
      weigh<false>(p, l, {place.batch, place.head, query, first}, statistics.from(row), s, ds);
    }
    uint64_t odd = 0;
    if (p.mask.any()) {
      __syncthreads();
      odd = tile(first, false).template take_odd<M::kOthers>(flags);
    }
    if (sees) {
      scale.fit(ds, sums);
      add_rows(l, ds, tile(first, false), first_step, sums);
      add_odd(odd, ds, keys, first, first_step, sums);
    }
    __syncthreads();
    if (M::kStages == 1) {
      copy(first + M::kOthers);
    }
  }
  scale.undo(sums);
  write_sums(l, sums, queries, p.out, query, first_step);
}

// The gradient with respect to 64 keys and values of a head, on tensor cores, over all query heads
// that read the key head.
template <class T, int kPadded>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks) mma_keys_kernel(Problem p) {
  using M = GradTiling<kPadded, true>;
  const Lane l(static_cast<int>(threadIdx.x));
  const Tile<T, kPadded> own{dynamic_shared()};
  const Tile<T, kPadded> own_d{own.packs.from(M::kOwn * M::kPacks)};
  const Packs others = own_d.packs.from(M::kOwn * M::kPacks);
  const Packs all_statistics = others.from(2 * M::kStages * M::kOthers * M::kPacks);
  const Packs flags = all_statistics.from(M::kStages * M::kOthers / 2);
  const auto tile = [&](int number, bool d) {
    const int stage = 2 * (number % M::kStages) + (d ? 1 : 0);
    return Tile<T, kPadded>{others.from(stage * M::kOthers * M::kPacks)};
  };
  const auto statistics = [&](int number) {
    const Packs lse = all_statistics.from(number % M::kStages * M::kOthers / 2);
    return Statistics{lse, lse.from(M::kOthers / 4)};
  };
  const Place place(p.tiles, M::kOwn, p.kv_heads);
  p.read_counts(place.batch);
  const int group = p.heads / p.kv_heads;
  Rows keys = p.keys_of(place.batch, place.head);
  const Rows values = p.values_of(place.batch, place.head);
  const int row = 16 * l.warp;
  const int key = place.first + row;
  const int first_step = static_cast<int>(blockIdx.y) * M::kColumns / 16;
  const int earliest = p.causal ? max(0, place.first - (p.keys - p.queries)) : 0;
  const int begin = earliest / M::kOthers * M::kOthers;
  const int end = p.end_of_queries(min(place.first + M::kOwn, p.keys) - 1);
  const int per_head = end <= begin ? 0 : (end - begin + M::kOthers - 1) / M::kOthers;
  // Tiles of queries, over all heads.
  const auto head_of = [&](int number) { return place.head * group + number / per_head; };
  const auto first_of = [&](int number) { return begin + number % per_head * M::kOthers; };
  const auto copy = [&](int number) {
    if (number < per_head * group) {
      const int head = head_of(number);
      const int first = first_of(number);
      tile(number, false).template copy<M::kOthers>(p.queries_of(place.batch, head), first);
      tile(number, true).template copy<M::kOthers>(p.of_queries(p.d_o, place.batch, head), first);
      const int query = first + static_cast<int>(threadIdx.x);
      if (static_cast<int>(threadIdx.x) < M::kOthers) {
        const int64_t at = (place.batch * p.heads + head) * p.queries + query;
        const bool present = query < p.queries;
        statistics(number).store(p, query - first, present ? p.lse[at] : 0.0f,
                                 present ? p.delta[at] : 0.0f);
      }
    }
    commit_copies();
  };
  own.template copy<M::kOwn>(keys, place.first);
  own_d.template copy<M::kOwn>(values, place.first);
  copy(0);

  Block<M::kColumns / 8> sums;
  Block<M::kColumns / 8> sums_v;
  Scale<T> scale;
  Scale<T> scale_v;
  for (int number = 0; number < per_head * group; ++number) {
    if (M::kStages == 2) {
      copy(number + 1);
    }
    wait_copies<M::kStages - 1>();
    __syncthreads();
    const int first = first_of(number);
    const int head = head_of(number);
    const int last = min(first + M::kOthers, p.queries) - 1;
    const bool sees = key < p.seen(last) && key + 16 > p.first_key(first);
    Block<M::kOthers / 8> s;
    Block<M::kOthers / 8> ds;
    if (sees) {
      multiply(l, own, row, tile(number, false), s);
      multiply(l, own_d, row, tile(number, true), ds);
      weigh<true>(p, l, {place.batch, head, key, first}, statistics(number), s, ds);
    }
    uint64_t odd = 0;
    uint64_t odd_d = 0;
    if (p.mask.any()) {
      __syncthreads();
      odd = tile(number, false).template take_odd<M::kOthers>(flags);
      odd_d = tile(number, true).template take_odd<M::kOthers>(flags.from(M::kOthers / 4));
    }
    if (sees) {
      scale_v.fit(s, sums_v);
      add_rows(l, s, tile(number, true), first_step, sums_v);
      add_odd(odd_d, s, p.of_queries(p.d_o, place.batch, head), first, first_step, sums_v);
      scale.fit(ds, sums);
      add_rows(l, ds, tile(number, false), first_step, sums);
      add_odd(odd, ds, p.queries_of(place.batch, head), first, first_step, sums);
    }
    __syncthreads();
    if (M::kStages == 1) {
      copy(number + 1);
    }
  }
  keys.count = p.keys;
  scale.undo(sums);
  scale_v.undo(sums_v);
  write_sums(l, sums, keys, p.out, key, first_step);
  write_sums(l, sums_v, keys, p.out_v, key, first_step);
}

// Launches the pass on tensor cores. Returns false if they do not compute in this dtype, or if the
// tiles do not fit in shared memory.
template <class T, bool kKeys>
bool mma_pass(Launch& l, Problem p) {
  bool fits = l.traits().multiplies(l.type()) && l.traits().attention != AttentionKernel::tiles;
  with_padded(p, [&]<int kPadded>() {
    using M = GradTiling<kPadded, kKeys>;
    fits = fits && M::kShared <= l.traits().shared_bytes();
    if (!fits) {
      return;
    }
    const dim3 blocks(tile(p, kKeys, M::kOwn), kPadded / M::kColumns);
    if constexpr (kKeys) {
      l.launch_shared("attention_grad keys", mma_keys_kernel<T, kPadded>, blocks, kMmaThreads,
                      M::kShared, p);
    } else {
      l.launch_shared("attention_grad queries", mma_queries_kernel<T, kPadded>, blocks, kMmaThreads,
                      M::kShared, p);
    }
  });
  return fits;
}

template <class T, bool kKeys>
void grad_pass(Launch& l, const Problem& p) {
  if constexpr (sizeof(T) == 2) {
    if (mma_pass<T, kKeys>(l, p)) {
      return;
    }
  }
  with_tiling<64>(p, kKeys, [&]<int kPadded, int kRows>() {
    Problem tiled = p;
    const unsigned blocks = tile(tiled, kKeys, Tiling<kPadded, kRows>::kOwn);
    l.launch(kKeys ? "attention_grad keys" : "attention_grad queries",
             attention_grad_kernel<kPadded, kRows, kKeys>, blocks, kThreads, tiled);
  });
}

// delta has the size of lse.
uint64_t grad_workspace(const NodeView& node) {
  return static_cast<uint64_t>(node.in(4).elements()) * sizeof(float);
}

uint64_t packed_grad_workspace(const NodeView& node) {
  return static_cast<uint64_t>(node.in(2).elements()) * sizeof(float);
}

// The operands of the problem are set.
template <class T>
void run(Launch& l, Problem p, T* dq, T* dk, T* dv) {
  align(p, p.q.data, p.k.data, p.v.data, p.o.data, p.d_o.data, dq, dk, dv);
  p.out = {dq, l.type()};
  p.row_out = l.workspace();
  grad_pass<T, false>(l, p);
  p.out = {dk, l.type()};
  p.out_v = {dv, l.type()};
  p.delta = l.workspace();
  grad_pass<T, true>(l, p);
}

template <class T>
void attention_grad(Launch& l) {
  Problem p = problem_of(l, 6);
  p.o = {l.in(3), l.type()};
  p.lse = l.in(4);
  p.d_o = {l.in(5), l.type()};
  run(l, p, l.out_as<T>(0), l.out_as<T>(1), l.out_as<T>(2));
}

template <class T>
void packed_attention_grad(Launch& l) {
  Problem p = packed_problem<T>(l);
  p.o = {l.in(1), l.type()};
  p.lse = l.in(2);
  p.d_o = {l.in(3), l.type()};
  T* const dqkv = l.out_as<T>(0);
  run(l, p, dqkv, dqkv + int64_t{p.heads} * p.dim, dqkv + int64_t{p.heads + p.kv_heads} * p.dim);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(attention_grad, .run = attention_grad<T>, .workspace = grad_workspace,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(packed_attention_grad, .run = packed_attention_grad<T>,
                          .workspace = packed_grad_workspace, .refusal = packed_refusal);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels
