//! ops(f32, f16, bf16) AttentionGrad PackedAttentionGrad
// The gradient of attention without atomics: a pass over queries for dq, and a pass over keys for
// dk and dv. Both run on tensor cores (device/attention_grad_mma.cuh) or in f32 arithmetic
// (device/attention_tiles.cuh).
#include "device/attention_grad_mma.cuh"
#include "device/attention_tiles.cuh"
#include "device/begin.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels {
namespace {

using namespace attention_kernels;

constexpr int kMostOfFourRows = 64;  // larger heads have no space for four rows per thread

// The gradient with respect to the own rows. For queries: delta, then dq. For keys: dk and dv, over
// all query heads that read the key head.
template <int kPadded, int kRows, bool kKeys>
__global__ void __launch_bounds__(kThreads, 1) attention_grad_kernel(Problem p) {
  begin_kernel();
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
      delta[row] = sum;
      const bool present = query < p.queries;
      lse[row] = present ? p.lse[p.statistic(place.batch, place.head, query)] : 0.0f;
      if (present) {
        p.copy_lse(place.batch, place.head, query);
        *p.delta_of(place.batch, place.head, query) = sum;
      }
    }
  }

  float4 sums[kRows][T::kQuadsEach];
  float4 sums_v[kRows][T::kQuadsEach];
  clear<T>(sums);
  clear<T>(sums_v);
  const int earliest = kKeys ? p.first_query(place.first) : p.first_key(place.first);
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
        const bool present = query < p.queries;
        lse[thread] = present ? p.lse[p.statistic(place.batch, head, query)] : 0.0f;
        delta[thread] = present ? *p.delta_of(place.batch, head, query) : 0.0f;
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

// How a pass computes.
enum class Way : uint8_t {
  by_shape,
  plain,      // on tensor cores, with the kernels of plain problems
  general,    // on tensor cores, with the other kernels
  four_rows,  // in f32, with four rows per thread
  two_rows,   // in f32, with two
};

bool uses_tensor_cores(DType type, const Traits& traits) {
  return type != DType::f32 && traits.multiplies(type) &&
         traits.attention != AttentionKernel::tiles;
}

// The ways of a pass that `bowline tune` measures. A candidate is a way for each pass.
std::vector<Way> ways_of(const Problem& p, bool is_masked, DType type, const Traits& traits) {
  std::vector<Way> ways;
  if (uses_tensor_cores(type, traits)) {
    if (!is_masked && p.softcap == 0 && p.scale > 0) {
      ways.push_back(Way::plain);
    }
    ways.push_back(Way::general);
  }
  if (p.dim <= kMostOfFourRows) {
    ways.push_back(Way::four_rows);
  }
  ways.push_back(Way::two_rows);
  return ways;
}

// Launches the pass on tensor cores. Returns false if they do not compute in this dtype, or if the
// tiles do not fit in shared memory.
template <class T, bool kKeys>
bool mma_pass(Launch& l, const Problem& p, Way way) {
  if (!uses_tensor_cores(l.type(), l.traits()) || way >= Way::four_rows) {
    return false;
  }
  const auto launch = [&]<int kPadded, int kRowTiles, bool kPlain>() {
    using M = GradTiling<kPadded, kKeys, kRowTiles>;
    if (M::kShared > l.traits().shared_bytes()) {
      return false;
    }
    Problem tiled = p;
    const dim3 blocks(tile(tiled, kKeys, M::kOwn), kPadded / M::kColumns);
    if constexpr (kKeys) {
      l.launch_shared(kPlain ? "tensor attention_grad keys" : "general tensor attention_grad keys",
                      mma_keys_kernel<T, kPadded, kRowTiles, kPlain>, blocks, kMmaThreads,
                      M::kShared, tiled);
    } else {
      l.launch_shared(
          kPlain ? "tensor attention_grad queries" : "general tensor attention_grad queries",
          mma_queries_kernel<T, kPadded, kRowTiles, kPlain>, blocks, kMmaThreads, M::kShared,
          tiled);
    }
    return true;
  };
  bool fits = false;
  with_padded(p, [&]<int kPadded>() {
    constexpr int kRowTiles = kPlainRowTiles<kPadded>;
    Problem tiled = p;
    const unsigned blocks = tile(tiled, kKeys, GradTiling<kPadded, kKeys, kRowTiles>::kOwn);
    const bool plain = way == Way::by_shape
                           ? is_plain<kRowTiles>(p, blocks, l.traits())
                           : way == Way::plain && is_plain<1>(p, blocks, l.traits());
    fits = plain ? launch.template operator()<kPadded, kRowTiles, true>()
                 : launch.template operator()<kGeneralPadded<kPadded>, 1, false>();
  });
  return fits;
}

// Launches both passes at once, on tensor cores. One after the other, they would leave
// multiprocessors idle. Returns false if the problem is not plain, if the blocks of a pass fill the
// GPU, or if the head is too large for one block per tile.
template <class T>
bool both_passes(Launch& l, const Problem& of_queries, const Problem& of_keys) {
  if (!uses_tensor_cores(l.type(), l.traits()) || of_queries.dim > 64 ||
      !is_plain<1>(of_queries, 0, l.traits())) {
    return false;
  }
  const auto launch = [&]<int kPadded>() {
    using Q = GradTiling<kPadded, false, 1>;
    using K = GradTiling<kPadded, true, 1>;
    static_assert(Q::kColumns == kPadded && K::kColumns == kPadded);
    constexpr unsigned kShared = std::max(Q::kShared, K::kShared);
    static_assert(kShared <= 64 * 1024);  // Traits::shared_bytes of sm_75
    Problem queries = of_queries;
    Problem keys = of_keys;
    const unsigned key_blocks = tile(keys, true, K::kOwn);
    const unsigned blocks = key_blocks + tile(queries, false, Q::kOwn);
    const auto threads = static_cast<uint64_t>(queries.rows()) * (kPadded / 8);
    l.launch("attention_grad statistics", statistics_kernel<T, kPadded>,
             blocks_for(threads, kMmaThreads), kMmaThreads, queries);
    l.launch_shared("tensor attention_grad of few blocks", mma_both_kernel<T, kPadded>, blocks,
                    kMmaThreads, kShared, queries, keys, key_blocks);
  };
  const auto fills = [&](bool keys) {
    Problem tiled = of_queries;
    return std::cmp_greater_equal(tile(tiled, keys, 2 * 16 * kMmaWarps), l.traits().processors);
  };
  if (fills(false) || fills(true)) {
    return false;
  }
  of_queries.dim <= 32 ? launch.template operator()<32>() : launch.template operator()<64>();
  return true;
}

template <class T, bool kKeys>
void grad_pass(Launch& l, const Problem& p, Way way) {
  if constexpr (sizeof(T) == 2) {
    if (mma_pass<T, kKeys>(l, p, way)) {
      return;
    }
  }
  const auto launch = [&]<int kPadded, int kRows>() {
    Problem tiled = p;
    const unsigned blocks = tile(tiled, kKeys, Tiling<kPadded, kRows>::kOwn);
    l.launch(kKeys ? "attention_grad keys" : "attention_grad queries",
             attention_grad_kernel<kPadded, kRows, kKeys>, blocks, kThreads, tiled);
  };
  const int rows = way == Way::four_rows ? 4 : way == Way::two_rows ? 2 : 0;
  with_tiling<kMostOfFourRows>(p, kKeys, rows, launch);
}

// `lse`: [batch, head, query].
uint64_t workspace_of(const Shape& lse) {
  return static_cast<uint64_t>(lse[0] * lse[1] * 2 * Problem::padded(lse[2])) * sizeof(float);
}

uint64_t grad_workspace(const NodeView& node) { return workspace_of(node.in(4)); }

uint64_t packed_grad_workspace(const NodeView& node) { return workspace_of(node.in(2)); }

uint32_t candidates_of(const Problem& p, bool is_masked, const NodeView& node) {
  const size_t ways = ways_of(p, is_masked, node.query.type, node.traits).size();
  return static_cast<uint32_t>(ways == 1 ? 0 : ways * ways);
}

uint32_t grad_candidates(const NodeView& node) {
  const auto& t = node.attributes<AttentionAttributes>();
  return candidates_of(problem_of(t, node.in(0), node.in(1)), t.mask() != file::AttentionMask::none,
                       node);
}

uint32_t packed_grad_candidates(const NodeView& node) {
  const auto& t = node.attributes<file::PackedAttentionAttributes>();
  return candidates_of(packed_problem(t, node.in(0)), false, node);
}

// The operands of the problem are set.
template <class T>
void run(Launch& l, Problem p, T* dq, T* dk, T* dv) {
  const std::vector<Way> ways = ways_of(p, p.mask.any(), l.type(), l.traits());
  const bool is_known = l.candidate() < ways.size() * ways.size();
  const Way of_queries = is_known ? ways[l.candidate() / ways.size()] : Way::by_shape;
  const Way of_keys = is_known ? ways[l.candidate() % ways.size()] : Way::by_shape;
  align(p, p.q.data, p.k.data, p.v.data, p.o.data, p.d_o.data, dq, dk, dv);
  p.out = {dq, l.type()};
  p.statistics = l.workspace();
  Problem keys = p;
  keys.out = {dk, l.type()};
  keys.out_v = {dv, l.type()};
  if constexpr (sizeof(T) == 2) {
    if (!is_known && both_passes<T>(l, p, keys)) {
      return;
    }
  }
  grad_pass<T, false>(l, p, of_queries);
  grad_pass<T, true>(l, keys, of_keys);
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
                          .candidates = grad_candidates, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(packed_attention_grad, .run = packed_attention_grad<T>,
                          .workspace = packed_grad_workspace, .candidates = packed_grad_candidates,
                          .refusal = packed_refusal);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels
