//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceMax ReduceMin ArgMax ArgMin TopK
// The largest and smallest elements along axes, and their indices. Values are mapped to integers
// with the same order, so that the result does not depend on the order of the comparisons.
#include <algorithm>

#include "core/loops.h"
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

// Second: one team per line finds the first element behind the previous result, k times.
template <unsigned kTeam, class T>
__global__ void top_k_passes_kernel(const T* x, T* values, int32_t* indices, uint64_t lines,
                                    uint64_t n, uint64_t step, uint64_t k, bool largest) {
  const uint64_t line = team_row<kTeam>();
  if (line >= lines) {
    return;
  }
  const T* const from = x + line / step * n * step + line % step;
  const uint64_t to = line / step * k * step + line % step;
  Candidate last = {INT64_MAX, -1};  // precedes every element
  for (uint64_t place = 0; place < k; ++place) {
    Candidate best = {INT64_MIN, INT64_MAX};  // follows every element
    for (uint64_t i = team_lane<kTeam>(); i < n; i += kTeam) {
      const int64_t order = order_of(number_at(from + i * step));
      const Candidate other = {largest ? order : ~order, static_cast<int64_t>(i)};
      best = comes_first(last, other, false) && comes_first(other, best, false) ? other : best;
    }
    last = first_of_team<kTeam>(best, false);
    if (team_lane<kTeam>() == 0) {
      values[to + place * step] = from[static_cast<uint64_t>(last.index) * step];
      indices[to + place * step] = static_cast<int32_t>(last.index);
    }
  }
}

// Third: blocks find the first k elements of chunks of a long line, then of chunks of these, until
// there is one chunk. An element is a key: its order in the upper half, and its index, so that the
// largest key comes first.
using Key = uint64_t;
constexpr unsigned kChunkKeys = 512;
constexpr uint64_t kLeastGain = 4;  // chunks hold at least this many times k elements
constexpr uint64_t kMostKeyBytes = uint64_t{64} << 20;

template <class T>
__device__ Key key_at(const T* at, uint64_t index, bool largest) {
  const int64_t order = min(order_of(number_at(at)), int64_t{INT32_MAX});  // of NaN
  const auto above = static_cast<uint64_t>((largest ? order : ~order) - INT32_MIN);
  return above << 32 | (UINT32_MAX - index);
}

// A line of elements or, after the first round, of keys.
struct Line {
  uint64_t n;
  uint64_t chunks;
  uint64_t k;
  uint64_t step;  // between the elements
  bool largest;

  uint64_t survivors() const {
    return (chunks - 1) * k + std::min(k, n - (chunks - 1) * kChunkKeys);
  }
};

// The place of an element in the result is the number of larger keys of its chunk. If there is one
// chunk, the results are written, else the keys of the next round.
template <class T>
__global__ void top_k_chunks_kernel(const T* x, const Key* keys, Key* next, T* values,
                                    int32_t* indices, Line line, uint64_t survivors, uint64_t n) {
  __shared__ Shared<Key[kChunkKeys]> chunk;
  const uint64_t number = blockIdx.x / line.chunks;
  const uint64_t part = blockIdx.x % line.chunks;
  const T* const from = x + number / line.step * n * line.step + number % line.step;
  const uint64_t i = part * kChunkKeys + threadIdx.x;
  const unsigned here =
      static_cast<unsigned>(min(line.n - part * kChunkKeys, uint64_t{kChunkKeys}));
  Key mine = 0;
  if (threadIdx.x < here) {
    mine =
        keys != nullptr ? keys[number * line.n + i] : key_at(from + i * line.step, i, line.largest);
  }
  chunk[threadIdx.x] = mine;
  __syncthreads();
  uint64_t place = threadIdx.x < here ? 0 : line.k;
  for (unsigned other = 0; other < here; ++other) {
    place += chunk[other] > mine ? 1 : 0;
  }
  if (place >= line.k) {
    return;
  }
  if (line.chunks > 1) {
    next[number * survivors + part * line.k + place] = mine;
    return;
  }
  const uint64_t index = UINT32_MAX - (mine & UINT32_MAX);
  const uint64_t to = (number / line.step * line.k + place) * line.step + number % line.step;
  values[to] = from[index * line.step];
  indices[to] = static_cast<int32_t>(index);
}

Line line_of(uint64_t n, uint64_t k, uint64_t step, bool largest) {
  return {n, (n + kChunkKeys - 1) / kChunkKeys, k, step, largest};
}

// Bytes of the keys of the first two rounds; 0: the method does not pay, or has no keys.
template <class T>
uint64_t key_bytes(uint64_t lines, uint64_t n, uint64_t k) {
  if (sizeof(T) > 4 || n <= kLongestOfWarp || k == 0 || k * kLeastGain > kChunkKeys) {
    return 0;
  }
  const uint64_t bytes = 2 * lines * line_of(n, k, 1, true).survivors() * sizeof(Key);
  return bytes <= kMostKeyBytes ? bytes : 0;
}

template <class T>
uint64_t top_k_workspace(const NodeView& node) {
  const auto& t = node.attributes<TopKAttributes>();
  const Shape& x = node.in(0);
  const auto n = static_cast<uint64_t>(x[positive_axis(t.axis(), x.rank())]);
  const auto elements = static_cast<uint64_t>(x.elements());
  return elements == 0 ? 0 : key_bytes<T>(elements / n, n, static_cast<uint64_t>(t.k()));
}

template <class T>
void top_k_of_chunks(Launch& l, uint64_t lines, uint64_t n, uint64_t k, uint64_t step,
                     bool largest) {
  const uint64_t half = key_bytes<T>(lines, n, k) / 2;
  std::byte* const memory = reinterpret_cast<std::byte*>(l.workspace());
  const Key* keys = nullptr;
  Line line = line_of(n, k, step, largest);
  for (unsigned round = 0;; ++round) {
    Key* const next = reinterpret_cast<Key*>(memory + round % 2 * half);
    l.launch("top k of chunks", top_k_chunks_kernel<T>, blocks_for(lines * line.chunks, 1),
             kChunkKeys, l.in_as<T>(0), keys, next, l.out_as<T>(0), l.out_as<int32_t>(1), line,
             line.survivors(), n);
    if (line.chunks == 1) {
      return;
    }
    line = line_of(line.survivors(), k, step, largest);
    keys = next;
  }
}

// Comparisons that all threads of a GPU make while one of them waits for an element: 10^12 per
// second, 100 ns.
constexpr uint64_t kComparisonsPerWait = 100000;

template <class T>
void top_k(Launch& l) {
  const auto& t = l.attributes<TopKAttributes>();
  const Shape& x = l.in_shape(0);
  const int axis = positive_axis(t.axis(), x.rank());
  const auto k = static_cast<uint64_t>(t.k());
  if (k == 0) {
    return;
  }
  const auto elements = static_cast<uint64_t>(x.elements());
  const auto n = static_cast<uint64_t>(x[axis]);
  const auto step = static_cast<uint64_t>(x.elements(axis + 1, x.rank()));
  const uint64_t lines = static_cast<uint64_t>(x.elements(0, axis)) * step;
  if (lines > 0 && key_bytes<T>(lines, n, k) > 0) {
    top_k_of_chunks<T>(l, lines, n, k, step, t.largest());
    return;
  }
  const unsigned team = n <= kLongestOfWarp ? kLanes : kRowThreads;
  const auto launch = [&](auto* kernel, uint64_t count, unsigned each, unsigned threads) {
    l.launch("top k", kernel, blocks_for(count, each), threads, l.in_as<T>(0), l.out_as<T>(0),
             l.out_as<int32_t>(1), count, n, step, k, t.largest());
  };
  if (2 * k >= n || k * kComparisonsPerWait >= elements * team) {
    launch(top_k_kernel<T>, elements, kElementThreads, kElementThreads);
  } else if (team == kLanes) {
    launch(top_k_passes_kernel<kLanes, T>, lines, kRowThreads / kLanes, kRowThreads);
  } else {
    launch(top_k_passes_kernel<kRowThreads, T>, lines, 1, kRowThreads);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_max, .run = reduce<T, true>);
BOWLINE_KERNELS_OF_NUMBERS(reduce_min, .run = reduce<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(arg_max, .run = arg<T, true>);
BOWLINE_KERNELS_OF_NUMBERS(arg_min, .run = arg<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(top_k, .run = top_k<T>, .workspace = top_k_workspace<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::extreme_kernels
