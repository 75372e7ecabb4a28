//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceProd CumSum
//! ops(i8, u8, i32, i64) ReduceSum
//! ops(f32, f16, bf16) ReduceProdGrad
// Products over axes and their gradient, sums of integers, and cumulative sums, in a fixed order.
// Integers wrap around.
#include "core/loops.h"
#include "device/begin.cuh"
#include "device/numbers.cuh"
#include "device/rows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::fold_kernels {
namespace {

template <bool kProduct, class A>
__device__ A joined(A a, A b) {
  return kProduct ? product_of(a, b) : sum_of(a, b);
}

// One team per group: a thread combines every team-th element; then a fixed tree combines the
// threads.
template <unsigned kTeam, bool kProduct, class T>
__global__ void fold_kernel(const T* x, T* y, ElementGroups g) {
  begin_kernel();
  using A = Number<T>;
  const uint64_t output = team_row<kTeam>();
  if (output >= g.outputs) {
    return;
  }
  const T* const from = x + g.begin(output);
  A total = kProduct ? A(1) : A(0);
  for (uint64_t i = team_lane<kTeam>(); i < g.length; i += kTeam) {
    total = joined<kProduct>(total, number_at(from + g.element(i)));
  }
  total = reduce_team<kTeam>(total, [](A a, A b) { return joined<kProduct>(a, b); });
  if (team_lane<kTeam>() == 0) {
    store_number(y + output, total);
  }
}

template <class T, bool kProduct>
void fold(Launch& l) {
  const ElementGroups g = groups_of(l.in_shape(0), l.attributes<ReduceAttributes>());
  launch_rows(
      l, "fold", g.outputs, g.length, false,
      [](auto team, auto) { return fold_kernel<team(), kProduct, T>; }, l.in_as<T>(0),
      l.out_as<T>(0), g);
}

// One thread per product: each element gets the product of the elements before it, multiplied by
// the product of those behind it.
template <class T>
__global__ void prod_grad_kernel(const T* x, const T* dy, T* dx, float* products, ElementGroups g) {
  begin_kernel();
  const uint64_t output = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (output >= g.outputs) {
    return;
  }
  const int64_t begin = g.begin(output);
  float before = 1;
  for (uint64_t i = 0; i < g.length; ++i) {
    const int64_t at = begin + g.element(i);
    products[at] = before;
    before *= read(x + at);
  }
  float behind = read(dy + output);
  for (uint64_t i = g.length; i-- > 0;) {
    const int64_t at = begin + g.element(i);
    write(dx + at, products[at] * behind);
    behind *= read(x + at);
  }
}

template <class T>
void prod_grad(Launch& l) {
  const ElementGroups g = groups_of(l.in_shape(0), l.attributes<ReduceAttributes>());
  float* const products = std::is_same_v<T, float> ? l.out(0) : l.workspace();
  l.launch("gradient of products", prod_grad_kernel<T>, blocks_for(g.outputs, kElementThreads),
           kElementThreads, l.in_as<T>(0), l.in_as<T>(1), l.out_as<T>(0), products, g);
}

template <class T>
uint64_t prod_grad_workspace(const NodeView& node) {
  return std::is_same_v<T, float> ? 0
                                  : static_cast<uint64_t>(node.out(0).elements()) * sizeof(float);
}

// One thread per line.
template <class T>
__global__ void cum_sum_kernel(const T* x, T* y, ElementGroups g, bool exclusive, bool reverse) {
  begin_kernel();
  const uint64_t line = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (line >= g.outputs) {
    return;
  }
  const int64_t begin = g.begin(line);
  Number<T> sum = 0;
  for (uint64_t k = 0; k < g.length; ++k) {
    const int64_t at = begin + g.element(reverse ? g.length - 1 - k : k);
    const Number<T> with = sum_of(sum, number_at(x + at));
    store_number(y + at, exclusive ? sum : with);
    sum = with;
  }
}

// One team per line, in rounds with one element per thread. Within a warp, sums use doubling
// distances (Hillis and Steele, "Data Parallel Algorithms", 1986). Totals pass from warp to warp
// and from round to round.
template <unsigned kTeam, class T>
__global__ void cum_sum_team_kernel(const T* x, T* y, ElementGroups g, bool exclusive,
                                    bool reverse) {
  begin_kernel();
  using A = Number<T>;
  const uint64_t line = team_row<kTeam>();
  if (line >= g.outputs) {
    return;
  }
  const unsigned lane = threadIdx.x % kLanes;
  const int64_t begin = g.begin(line);
  A sum = 0;  // of the previous rounds
  for (uint64_t first = 0; first < g.length; first += kTeam) {
    const uint64_t k = first + team_lane<kTeam>();
    const bool is_there = k < g.length;
    const int64_t at = begin + (is_there ? g.element(reverse ? g.length - 1 - k : k) : 0);
    A with = is_there ? number_at(x + at) : A(0);
    for (unsigned distance = 1; distance < kLanes; distance *= 2) {
      const A earlier = __shfl_up_sync(0xFFFFFFFF, with, distance);
      with = lane < distance ? with : sum_of(earlier, with);
    }
    const A neighbour = __shfl_up_sync(0xFFFFFFFF, with, 1);
    A total = __shfl_sync(0xFFFFFFFF, with, kLanes - 1);
    A before = lane == 0 ? A(0) : neighbour;
    if constexpr (kTeam > kLanes) {
      constexpr unsigned kWarps = kTeam / kLanes;
      __shared__ Shared<A[kWarps]> totals;
      __syncthreads();  // all threads have read the sums of the previous round
      if (lane == 0) {
        totals[threadIdx.x / kLanes] = total;
      }
      __syncthreads();
      A warps = 0;
      total = 0;
      for (unsigned w = 0; w < kWarps; ++w) {
        warps = w == threadIdx.x / kLanes ? total : warps;
        total = sum_of(total, static_cast<A>(totals[w]));
      }
      before = sum_of(warps, before);
      with = sum_of(warps, with);
    }
    if (is_there) {
      store_number(y + at, sum_of(sum, exclusive ? before : with));
    }
    sum = sum_of(sum, total);
  }
}

// Below this number of lines, one thread per line leaves most of a GPU idle. It also loads
// contiguous lines element by element.
constexpr uint64_t kManyLines = 4096;

template <class T>
void cum_sum(Launch& l) {
  const auto& t = l.attributes<CumSumAttributes>();
  const Shape& x = l.in_shape(0);
  const ElementGroups g = groups_along(x, t.axis());
  const bool neighbours = x.elements(positive_axis(t.axis(), x.rank()) + 1, x.rank()) == 1;
  const auto launch = [&](auto* kernel, unsigned lines, unsigned threads) {
    l.launch("running sum", kernel, blocks_for(g.outputs, lines), threads, l.in_as<T>(0),
             l.out_as<T>(0), g, t.exclusive(), t.reverse());
  };
  if (g.length < kLanes || (g.outputs >= kManyLines && !neighbours)) {
    launch(cum_sum_kernel<T>, kElementThreads, kElementThreads);
  } else if (g.length <= kLongestOfWarp) {
    launch(cum_sum_team_kernel<kLanes, T>, kRowThreads / kLanes, kRowThreads);
  } else {
    launch(cum_sum_team_kernel<kRowThreads, T>, 1, kRowThreads);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_prod, .run = fold<T, true>);
BOWLINE_KERNELS_OF_INTEGERS(reduce_sum, .run = fold<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(cum_sum, .run = cum_sum<T>);
BOWLINE_KERNELS_OF_FLOATS(reduce_prod_grad, .run = prod_grad<T>,
                          .workspace = prod_grad_workspace<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::fold_kernels
