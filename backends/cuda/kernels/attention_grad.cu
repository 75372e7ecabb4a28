//! ops(f32, f16, bf16) AttentionGrad
// The gradient of attention without atomics (device/attention.cuh): a pass over queries for dq, and
// a pass over keys for dk and dv.
#include "device/attention.cuh"

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

template <bool kKeys>
void grad_pass(Launch& l, Problem p) {
  with_tiling<64>(p, kKeys, [&]<int kPadded, int kRows>() {
    const unsigned blocks = tile(p, kKeys, Tiling<kPadded, kRows>::kOwn);
    l.launch(kKeys ? "attention_grad keys" : "attention_grad queries",
             attention_grad_kernel<kPadded, kRows, kKeys>, blocks, kThreads, p);
  });
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

BOWLINE_KERNELS_OF_FLOATS(attention_grad, .run = attention_grad, .workspace = grad_workspace,
                          .refusal = refusal);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels
