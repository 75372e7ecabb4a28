//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceMax ReduceMin ArgMax ArgMin TopK
// The largest and smallest elements along axes, and their indices. Values are mapped to integers
// with the same order, so that the result does not depend on the order of the comparisons.
#include <algorithm>

#include "core/loops.h"
#include "device/begin.cuh"
#include "device/last_block.cuh"
#include "device/numbers.cuh"
#include "device/rows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::extreme_kernels {
namespace {

// An element of a group in the order of the reduction. Among equal elements, the first (or the
// last) precedes the others.
struct Candidate {
  int64_t order;
  int64_t index;
};

__device__ inline bool comes_first(Candidate a, Candidate b, bool last) {
  return a.order > b.order ||
         (a.order == b.order && (last ? a.index > b.index : a.index < b.index));
}

// NaN precedes every value in both orders.
template <class T>
__device__ int64_t order_at(const T* at, bool largest) {
  const Number<T> x = number_at(at);
  const int64_t order = order_of(x);
  return largest || x != x ? order : ~order;
}

__device__ Candidate from_lane(Candidate x, unsigned distance) {
  return {BOWLINE_CUDA_NAMESPACE::from_lane(x.order, distance),
          BOWLINE_CUDA_NAMESPACE::from_lane(x.index, distance)};
}

template <unsigned kTeam>
__device__ Candidate first_of_team(Candidate best, bool last) {
  return reduce_team<kTeam>(
      best, [=](Candidate a, Candidate b) { return comes_first(b, a, last) ? b : a; });
}

// One team per group. One of `values` and `indices` is null.
template <unsigned kTeam, class T>
__global__ void extreme_kernel(const T* x, T* values, int32_t* indices, ElementGroups g,
                               bool largest, bool last) {
  begin_kernel();
  const uint64_t output = team_row<kTeam>();
  if (output >= g.outputs) {
    return;
  }
  const T* const from = x + g.begin(output);
  // Initially not an element: follows every element.
  Candidate best = {INT64_MIN, last ? -1 : INT64_MAX};
  for (uint64_t i = team_lane<kTeam>(); i < g.length; i += kTeam) {
    const Candidate other = {order_at(from + g.element(i), largest), static_cast<int64_t>(i)};
    best = comes_first(other, best, last) ? other : best;
  }
  best = first_of_team<kTeam>(best, last);
  if (team_lane<kTeam>() != 0) {
    return;
  }
  if (indices != nullptr) {
    indices[output] = static_cast<int32_t>(best.index);
  } else {
    values[output] = from[g.element(static_cast<uint64_t>(best.index))];
  }
}

template <class T>
void launch_extreme(Launch& l, T* values, int32_t* indices, const ElementGroups& g, bool largest,
                    bool last) {
  launch_rows(
      l, "extreme", g.outputs, g.length, false,
      [](auto team, auto) { return extreme_kernel<team(), T>; }, l.in_as<T>(0), values, indices, g,
      largest, last);
}

template <class T, bool kLargest>
void reduce(Launch& l) {
  launch_extreme<T>(l, l.out_as<T>(0), nullptr,
                    groups_of(l.in_shape(0), l.attributes<ReduceAttributes>()), kLargest, false);
}

template <class T, bool kLargest>
void arg(Launch& l) {
  const auto& t = l.attributes<ArgAttributes>();
  launch_extreme<T>(l, nullptr, l.out_as<int32_t>(0), groups_along(l.in_shape(0), t.axis()),
                    kLargest, t.last());
}

// TopK has three methods. First: one thread per element counts the elements of its line that
// precede it; this count is its position in the result. NaN counts as the largest value.
template <class T>
__global__ void top_k_kernel(const T* x, T* values, int32_t* indices, uint64_t count, uint64_t n,
                             uint64_t step, uint64_t k, bool largest) {
  begin_kernel();
  const uint64_t i = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const uint64_t own = i / step % n;
  const uint64_t outer = i / (n * step);
  const T* const line = x + outer * n * step + i % step;
  const int64_t order = order_of(number_at(x + i));
  uint64_t place = 0;
  for (uint64_t j = 0; j < n && place < k; ++j) {
    const int64_t other = order_of(number_at(line + j * step));
    const bool before = largest ? other > order : other < order;
    place += before || (other == order && j < own) ? 1 : 0;
  }
  if (place < k) {
    const uint64_t to = (outer * k + place) * step + i % step;
    values[to] = x[i];
    indices[to] = static_cast<int32_t>(own);
  }
}

// Second: one warp per short line finds the first element behind the previous result, k times.
template <class T>
__global__ void top_k_passes_kernel(const T* x, T* values, int32_t* indices, uint64_t lines,
                                    uint64_t n, uint64_t step, uint64_t k, bool largest) {
  begin_kernel();
  const uint64_t line = team_row<kLanes>();
  if (line >= lines) {
    return;
  }
  const T* const from = x + line / step * n * step + line % step;
  const uint64_t to = line / step * k * step + line % step;
  Candidate last = {INT64_MAX, -1};  // precedes every element
  for (uint64_t place = 0; place < k; ++place) {
    Candidate best = {INT64_MIN, INT64_MAX};  // follows every element
    for (uint64_t i = team_lane<kLanes>(); i < n; i += kLanes) {
      const int64_t order = order_of(number_at(from + i * step));
      const Candidate other = {largest ? order : ~order, static_cast<int64_t>(i)};
      best = comes_first(last, other, false) && comes_first(other, best, false) ? other : best;
    }
    last = first_of_team<kLanes>(best, false);
    if (team_lane<kLanes>() == 0) {
      values[to + place * step] = from[static_cast<uint64_t>(last.index) * step];
      indices[to + place * step] = static_cast<int32_t>(last.index);
    }
  }
}

// Third: radix selection, in one launch. A line is divided into chunks, with one block each. A
// block finds the first k keys of its chunk, and the last block of a line finds those of the keys
// of all chunks and sorts them. The keys of a line are distinct, so the result does not depend on
// the order in which threads and blocks finish.
constexpr unsigned kSelectThreads = 512;
constexpr int kDigitBits = 11;
constexpr unsigned kBins = 1u << kDigitBits;
constexpr uint64_t kLeastChunk = 4096;
constexpr uint64_t kLeastGain = 4;  // chunks hold at least this many times k elements

// Digits of an integer, the highest first. The last digit may be short; it ends with zeros.
template <class U>
struct Digits {
  static constexpr int kBits = 8 * sizeof(U);
  static constexpr int kCount = (kBits + kDigitBits - 1) / kDigitBits;
  __device__ static int shift(int digit) { return kBits - kDigitBits * (digit + 1); }
  __device__ static unsigned get(U x, int digit) {
    const int by = shift(digit);
    return static_cast<unsigned>(by < 0 ? x << -by : x >> by) % kBins;
  }
  // Narrows the integers from `low` to `high`, with equal digits before, to those with this digit.
  __device__ static void narrow(U& low, U& high, int digit, unsigned bin) {
    const int by = shift(digit);
    low |= by < 0 ? static_cast<U>(bin) >> -by : static_cast<U>(bin) << by;
    high = by <= 0 ? low : low | ((U{1} << by) - 1);
  }
};

// An element. The largest key comes first: `order` grows with the value (or falls), and `rest`
// falls with the index, for equal values.
template <class U>
struct Key {
  using Word = U;
  using Order = Digits<U>;
  using Rest = Digits<uint32_t>;
  static constexpr int kDigits = Order::kCount + Rest::kCount;

  U order;
  uint32_t rest;

  __device__ uint64_t index() const { return UINT32_MAX - rest; }
  __device__ unsigned digit(int d) const {
    return d < Order::kCount ? Order::get(order, d) : Rest::get(rest, d - Order::kCount);
  }
};
template <class U>
__device__ bool comes_first(Key<U> a, Key<U> b) {
  return a.order > b.order || (a.order == b.order && a.rest > b.rest);
}

template <class T>
using KeyOf = Key<std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;
// The keys that a block sorts in shared memory.
template <class T>
constexpr uint64_t kSortedKeys = 16384 / sizeof(KeyOf<T>);

template <class T>
__device__ KeyOf<T> key_of(T x, uint64_t index, bool largest) {
  int64_t order = order_of(number_at(&x));
  if constexpr (sizeof(T) < 8) {
    order = min(order, int64_t{INT32_MAX});  // of NaN
  }
  using U = typename KeyOf<T>::Word;
  constexpr U kSign = U{1} << (Digits<U>::kBits - 1);
  KeyOf<T> key;
  key.order = static_cast<U>(largest ? order : ~order) ^ kSign;
  key.rest = UINT32_MAX - static_cast<uint32_t>(index);
  return key;
}

struct Selection {
  uint64_t n;
  uint64_t step;  // between the elements of a line
  uint64_t k;
  uint64_t chunk;  // elements
  unsigned chunks;
  bool largest;

  __host__ __device__ uint64_t elements_of(uint64_t part) const {
    return part + 1 < chunks ? chunk : n - part * chunk;
  }
  // Keys of all chunks of a line.
  __device__ uint64_t survivors() const {
    return (chunks - 1) * k + min(k, elements_of(chunks - 1));
  }
};

// The elements [begin, begin + n) of a line. Neighbours are read 16 bytes at a time.
template <class T>
struct Elements {
  const T* line;
  uint64_t begin;
  uint64_t n;
  uint64_t step;
  bool largest;

  // Calls f for the keys of this thread.
  template <class F>
  __device__ void each(F&& f) const {
    if (step > 1) {
      for (uint64_t i = threadIdx.x; i < n; i += kSelectThreads) {
        f(key_of(line[(begin + i) * step], begin + i, largest));
      }
      return;
    }
    for_row<kSelectThreads, kPack<T>>(line + begin, n, [&]<int kMany>(uint64_t i) {
      const auto some = *reinterpret_cast<const Some<T, kMany>*>(line + begin + i);
      BOWLINE_UNROLL
      for (int e = 0; e < kMany; ++e) {
        f(key_of(some.x[e], begin + i + static_cast<uint64_t>(e), largest));
      }
    });
  }
};

template <class K>
struct Keys {
  const K* keys;
  uint64_t n;

  template <class F>
  __device__ void each(F&& f) const {
    for (uint64_t i = threadIdx.x; i < n; i += kSelectThreads) {
      f(keys[i]);
    }
  }
};

// The sum of x over the threads before this one.
__device__ unsigned sum_before(unsigned x) {
  constexpr unsigned kWarps = kSelectThreads / kLanes;
  __shared__ Shared<unsigned[kWarps]> sums;
  unsigned sum = x;
  for (unsigned distance = 1; distance < kLanes; distance *= 2) {
    const unsigned other = __shfl_up_sync(0xFFFFFFFF, sum, distance);
    sum += threadIdx.x % kLanes >= distance ? other : 0;
  }
  if (threadIdx.x % kLanes == kLanes - 1) {
    sums[threadIdx.x / kLanes] = sum;
  }
  __syncthreads();
  for (unsigned warp = 0; warp < threadIdx.x / kLanes; ++warp) {
    sum += sums[warp];
  }
  return sum - x;
}

// Returns the last of the first `wanted` keys. Counts the keys by their highest digit, then those
// that share the digit of the result by the next digit, and so on.
template <class K, class Source>
__device__ K bound_of(const Source& source, unsigned wanted) {
  constexpr unsigned kEach = kBins / kSelectThreads;
  __shared__ Shared<unsigned[kBins]> counts;
  __shared__ Shared<unsigned[3]> found;  // the bin, the keys wanted of it, and all its keys
  K low = {};
  K high = {static_cast<decltype(low.order)>(-1), UINT32_MAX};
  for (int d = 0; d < K::kDigits; ++d) {
    for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) {
      counts[i] = 0;
    }
    __syncthreads();
    source.each([&](K key) {
      if (!comes_first(low, key) && !comes_first(key, high)) {
        atomicInc(&counts[key.digit(d)], UINT32_MAX);
      }
    });
    __syncthreads();
    unsigned mine[kEach];
    unsigned sum = 0;
    const unsigned first = kBins - 1 - threadIdx.x * kEach;  // bins in descending order
    BOWLINE_UNROLL
    for (unsigned e = 0; e < kEach; ++e) {
      mine[e] = counts[first - e];
      sum += mine[e];
    }
    unsigned before = sum_before(sum);
    BOWLINE_UNROLL
    for (unsigned e = 0; e < kEach; ++e) {
      if (before < wanted && before + mine[e] >= wanted) {
        found[0] = first - e;
        found[1] = wanted - before;
        found[2] = mine[e];
      }
      before += mine[e];
    }
    __syncthreads();
    if (d < K::Order::kCount) {
      K::Order::narrow(low.order, high.order, d, found[0]);
    } else {
      K::Rest::narrow(low.rest, high.rest, d - K::Order::kCount, found[0]);
    }
    wanted = found[1];
    if (wanted == found[2]) {
      break;
    }
  }
  return low;
}

// Calls put(i, key) for the keys from `bound` on. i counts them in any order.
template <class K, class Source, class F>
__device__ void gather(const Source& source, K bound, F&& put) {
  __shared__ Shared<unsigned> count;
  __syncthreads();  // the count of an earlier call is already read
  if (threadIdx.x == 0) {
    count = 0;
  }
  __syncthreads();
  source.each([&](K key) {
    if (!comes_first(bound, key)) {
      put(atomicInc(&count, UINT32_MAX), key);
    }
  });
  __syncthreads();
}

// Writes a key of a line to its place in the result.
template <class T>
__device__ void put_result(const Selection& s, const T* x, T* values, int32_t* indices,
                           uint64_t line, uint64_t place, uint64_t index) {
  const T* const from = x + line / s.step * s.n * s.step + line % s.step;
  const uint64_t to = (line / s.step * s.k + place) * s.step + line % s.step;
  values[to] = from[index * s.step];
  indices[to] = static_cast<int32_t>(index);
}

// `survivors`: memory for the keys of all chunks, if there are several. `chosen`: (optional) memory
// for the keys of the result, which another launch sorts.
template <class T>
__global__ void __launch_bounds__(kSelectThreads, 1)
    top_k_select_kernel(const T* x, KeyOf<T>* survivors, KeyOf<T>* chosen, T* values,
                        int32_t* indices, Selection s, uint32_t* counters) {
  begin_kernel();
  using K = KeyOf<T>;
  __shared__ Shared<K[kSortedKeys<T>]> sorted;
  const uint64_t line = blockIdx.x / s.chunks;
  const uint64_t part = blockIdx.x % s.chunks;
  const Elements<T> elements = {x + line / s.step * s.n * s.step + line % s.step, part * s.chunk,
                                s.elements_of(part), s.step, s.largest};
  // Finds the first `count` keys of a source, and writes them to `to`, or to shared memory.
  const auto choose = [&](const auto& source, uint64_t count, K* to) {
    const K bound = bound_of<K>(source, static_cast<unsigned>(count));
    gather(source, bound, [&](unsigned i, K key) {
      if (to != nullptr) {
        to[i] = key;
      } else {
        sorted[i] = key;
      }
    });
  };
  K* const results = chosen == nullptr ? nullptr : chosen + line * s.k;
  K* const of_line = survivors + line * s.chunks * s.k;
  choose(elements, min(s.k, elements.n), s.chunks == 1 ? results : of_line + part * s.k);
  if (s.chunks > 1) {
    if (!arrives_last(counters + line, s.chunks)) {
      return;
    }
    choose(Keys<K>{of_line, s.survivors()}, s.k, results);
  }
  if (results != nullptr) {
    return;
  }
  for (uint64_t i = threadIdx.x; i < s.k; i += kSelectThreads) {
    const K mine = sorted[i];
    unsigned place = 0;
    for (uint64_t other = 0; other < s.k; ++other) {
      place += comes_first<typename K::Word>(sorted[other], mine) ? 1 : 0;
    }
    put_result(s, x, values, indices, line, place, mine.index());
  }
}

// Sorts the `count` keys that were chosen. One thread per key counts the larger keys of its line.
template <class T>
__global__ void top_k_sort_kernel(const T* x, const KeyOf<T>* chosen, T* values, int32_t* indices,
                                  Selection s, uint64_t count) {
  begin_kernel();
  const uint64_t i = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const KeyOf<T>* const keys = chosen + i / s.k * s.k;
  const KeyOf<T> mine = chosen[i];
  uint64_t place = 0;
  for (uint64_t other = 0; other < s.k; ++other) {
    place += comes_first(keys[other], mine) ? 1 : 0;
  }
  put_result(s, x, values, indices, i / s.k, place, mine.index());
}

// The division of a TopK, and its memory.
struct TopK {
  TopK(const Shape& x, const TopKAttributes& t, const Traits& traits) {
    const int axis = positive_axis(t.axis(), x.rank());
    s.n = static_cast<uint64_t>(x[axis]);
    s.step = static_cast<uint64_t>(x.elements(axis + 1, x.rank()));
    s.k = static_cast<uint64_t>(t.k());
    s.largest = t.largest();
    elements = static_cast<uint64_t>(x.elements());
    lines = elements == 0 ? 0 : elements / s.n;
    const uint64_t blocks = 2 * static_cast<uint64_t>(traits.processors);
    const uint64_t parts = lines > kBlockCounters ? 1 : blocks / std::max<uint64_t>(lines, 1) + 1;
    // Chunks start at multiples of 16 elements, so that all start alike for accesses of 16 bytes.
    const uint64_t least = std::max({kLeastChunk, kLeastGain * s.k, (s.n + parts - 1) / parts});
    s.chunk = (least + 15) / 16 * 16;
    s.chunks = lines > kBlockCounters ? 1 : std::max(1u, blocks_for(s.n, s.chunk));
  }

  bool selects() const { return lines > 0 && s.k > 0 && s.n > kLongestOfWarp; }
  template <class T>
  bool sorts_apart() const {
    return s.k > kSortedKeys<T>;
  }
  uint64_t survivors() const { return s.chunks == 1 ? 0 : lines * s.chunks * s.k; }

  Selection s;
  uint64_t elements;
  uint64_t lines;
};

template <class T>
uint64_t top_k_workspace(const NodeView& node) {
  const TopK top(node.in(0), node.attributes<TopKAttributes>(), node.traits);
  if (!top.selects()) {
    return 0;
  }
  const uint64_t chosen = top.sorts_apart<T>() ? top.lines * top.s.k : 0;
  return (top.survivors() + chosen) * sizeof(KeyOf<T>);
}

template <class T>
void select(Launch& l, const TopK& top) {
  auto* const survivors = reinterpret_cast<KeyOf<T>*>(l.workspace());
  KeyOf<T>* const chosen = top.sorts_apart<T>() ? survivors + top.survivors() : nullptr;
  l.launch("top k", top_k_select_kernel<T>, blocks_for(top.lines * top.s.chunks, 1), kSelectThreads,
           l.in_as<T>(0), survivors, chosen, l.out_as<T>(0), l.out_as<int32_t>(1), top.s,
           l.block_counters());
  if (chosen != nullptr) {
    const uint64_t count = top.lines * top.s.k;
    l.launch("top k sort", top_k_sort_kernel<T>, blocks_for(count, kElementThreads),
             kElementThreads, l.in_as<T>(0), chosen, l.out_as<T>(0), l.out_as<int32_t>(1), top.s,
             count);
  }
}

// Comparisons that all threads of a GPU make while one of them waits for an element: 10^12 per
// second, 100 ns.
constexpr uint64_t kComparisonsPerWait = 100000;

template <class T>
void top_k(Launch& l) {
  const TopK top(l.in_shape(0), l.attributes<TopKAttributes>(), l.traits());
  if (top.selects()) {
    select<T>(l, top);
    return;
  }
  const Selection& s = top.s;
  if (s.k == 0) {
    return;
  }
  const auto launch = [&](auto* kernel, uint64_t count, unsigned each, unsigned threads) {
    l.launch("top k", kernel, blocks_for(count, each), threads, l.in_as<T>(0), l.out_as<T>(0),
             l.out_as<int32_t>(1), count, s.n, s.step, s.k, s.largest);
  };
  if (2 * s.k >= s.n || s.k * kComparisonsPerWait >= top.elements * kLanes) {
    launch(top_k_kernel<T>, top.elements, kElementThreads, kElementThreads);
  } else {
    launch(top_k_passes_kernel<T>, top.lines, kRowThreads / kLanes, kRowThreads);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_max, .run = reduce<T, true>);
BOWLINE_KERNELS_OF_NUMBERS(reduce_min, .run = reduce<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(arg_max, .run = arg<T, true>);
BOWLINE_KERNELS_OF_NUMBERS(arg_min, .run = arg<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(top_k, .run = top_k<T>, .workspace = top_k_workspace<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::extreme_kernels
