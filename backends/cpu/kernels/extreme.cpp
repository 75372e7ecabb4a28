//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceMax ReduceMin ArgMax ArgMin TopK
// The largest and smallest elements along axes, and their indices. 0 equals -0. NaN counts as the
// largest value, for ReduceMin and ArgMin as the smallest.
#include <algorithm>
#include <limits>

#include "core/element_types.h"
#include "kernel.h"
#include "reduction.h"

namespace bowline::detail::cpu::extreme_kernels {
namespace {

// True if a precedes b in the order that puts the largest (or smallest) element first.
template <class T>
bool beats(bool largest, bool nan_first, T a, T b) {
  if constexpr (Float<T>) {
    const float u = to_f32(a);
    const float v = to_f32(b);
    if (u != u || v != v) {
      return nan_first ? u != u && v == v : u == u && v != v;
    }
    return largest ? u > v : u < v;
  } else {
    return largest ? a > b : a < b;
  }
}

template <class T>
auto comparable(T x) {
  if constexpr (Float<T>) {
    return to_f32(x);
  } else {
    return x;
  }
}

// The reduced axes as the middle axis of three, if they are neighbours with more axes behind them.
// Otherwise `rows` is 0.
struct Columns {
  Columns(const Shape& x, const Axes& reduced) {
    int a = 0;
    const auto pass = [&](bool which, int64_t& size) {
      for (; a < x.rank() && reduced[static_cast<size_t>(a)] == which; ++a) {
        size *= x[a];
      }
    };
    int64_t middle = 1;
    pass(false, planes);
    pass(true, middle);
    pass(false, width);
    rows = a == x.rank() && width > 1 ? middle : 0;
  }
  int64_t planes = 1, rows = 0, width = 1;
};

// Reduces row by row, with several columns at a time.
template <class T, bool kLargest>
void reduce_columns(const Launch& l, const Columns& c) {
  constexpr int64_t kTogether = 256;
  const int64_t parts = (c.width + kTogether - 1) / kTogether;
  l.threads.parallel_for(static_cast<size_t>(c.planes * parts), [&](size_t task, size_t) {
    const int64_t plane = static_cast<int64_t>(task) / parts;
    const int64_t first = static_cast<int64_t>(task) % parts * kTogether;
    const int64_t n = std::min(kTogether, c.width - first);
    const T* from = l.in[0].as<const T>() + plane * c.rows * c.width + first;
    T* const best = l.out[0].as<T>() + plane * c.width + first;
    std::copy_n(from, n, best);
    for (int64_t row = 1; row < c.rows; ++row) {
      from += c.width;
      for (int64_t i = 0; i < n; ++i) {
        const auto a = comparable(from[i]), b = comparable(best[i]);
        const bool beaten = kLargest ? a > b : a < b, number_beaten = a != a && b == b;
        best[i] = beaten || number_beaten ? from[i] : best[i];
      }
    }
  });
}

template <class T, bool kLargest>
void run_reduce(const Launch& l) {
  if (const Columns c(*l.in[0].shape, named_axes_of(l)); c.rows > 0) {
    return reduce_columns<T, kLargest>(l, c);
  }
  const T* const x = l.in[0].as<const T>();
  T* const y = l.out[0].as<T>();
  for_reductions(l.threads, *l.in[0].shape, named_axes_of(l), [=](int64_t output, auto walk) {
    T best{};
    bool known = false;
    walk([&](int64_t at) {
      if (!known || beats(kLargest, true, x[at], best)) {
        best = x[at];
        known = true;
      }
    });
    y[output] = best;
  });
}

template <class T, bool kLargest>
void run_arg(const Launch& l) {
  const auto& t = l.attributes<ArgAttributes>();
  const Shape& shape = *l.in[0].shape;
  const Lines lines(shape, positive_axis(t.axis(), shape.rank()));
  const bool last = t.last();
  const T* const x = l.in[0].as<const T>();
  auto* const y = l.out[0].as<int32_t>();
  for_lines(l.threads, lines, [=](int64_t line, int64_t begin, size_t) {
    int64_t best = 0;
    for (int64_t i = 1; i < lines.n; ++i) {
      const T a = x[begin + i * lines.step];
      const T b = x[begin + best * lines.step];
      if (last ? !beats(kLargest, true, b, a) : beats(kLargest, true, a, b)) {
        best = i;
      }
    }
    y[line] = static_cast<int32_t>(best);
  });
}

// Number of elements compared with a bound at once.
constexpr int64_t kRun = 64;

// True if one of kRun elements may precede `bound`. True also for NaN elements, and if `bound` is
// NaN.
template <class T, bool kLargest>
bool any_may_beat(const T* x, T bound) {
  const auto than = comparable(bound);
  int any = 0;
  for (int64_t i = 0; i < kRun; ++i) {
    const auto a = comparable(x[i]);
    any |= static_cast<int>(kLargest ? !(a <= than) : !(a >= than));
  }
  return any != 0;
}

// Elements of a line that may be among the first k are collected. At more than twice k elements,
// the collection is cut to k, and its last element becomes the bound for the rest of the line.
int64_t gathered(int64_t k) { return 2 * k + kRun; }

// Writes the indices of the first k elements in order; equal elements are sorted by index. `order`
// has room for gathered(k) elements.
template <class T, bool kLargest>
void find_first(const T* x, const Lines& lines, int64_t k, int32_t* order) {
  const int64_t step = lines.step;
  const auto before = [=](int32_t a, int32_t b) {
    const T u = x[a * step];
    const T v = x[b * step];
    return beats(kLargest, kLargest, u, v) || (!beats(kLargest, kLargest, v, u) && a < b);
  };
  int32_t* end = order;
  bool bounded = false;
  T bound{};
  for (int64_t begin = 0; begin < lines.n; begin += kRun) {
    const int64_t stop = std::min(begin + kRun, lines.n);
    if (bounded && step == 1 && stop - begin == kRun &&
        !any_may_beat<T, kLargest>(x + begin, bound)) {
      continue;
    }
    for (int64_t i = begin; i < stop; ++i) {
      if (!bounded || beats(kLargest, kLargest, x[i * step], bound)) {
        *end++ = static_cast<int32_t>(i);
      }
    }
    if (end - order > 2 * k) {
      std::nth_element(order, order + k - 1, end, before);
      end = order + k;
      bounded = true;
      bound = x[end[-1] * step];
    }
  }
  std::partial_sort(order, order + k, end, before);
}

template <class T>
void run_top_k(const Launch& l) {
  const auto& t = l.attributes<TopKAttributes>();
  const Shape& shape = *l.in[0].shape;
  const Lines lines(shape, positive_axis(t.axis(), shape.rank()));
  const int64_t k = t.k();
  const auto find = t.largest() ? find_first<T, true> : find_first<T, false>;
  const T* const x = l.in[0].as<const T>();
  T* const values = l.out[0].as<T>();
  auto* const indices = l.out[1].as<int32_t>();
  auto* const orders = reinterpret_cast<int32_t*>(l.workspace);
  if (k == 0) {
    return;
  }
  for_lines(l.threads, lines, [=](int64_t line, int64_t begin, size_t thread) {
    int32_t* const order = orders + static_cast<int64_t>(thread) * gathered(k);
    find(x + begin, lines, k, order);
    const int64_t to = line / lines.step * k * lines.step + line % lines.step;
    for (int64_t j = 0; j < k; ++j) {
      values[to + j * lines.step] = x[begin + order[j] * lines.step];
      indices[to + j * lines.step] = order[j];
    }
  });
}

// The collected elements of a line, per thread.
uint64_t top_k_workspace(const device::NodeQuery& node, const Threads& threads) {
  const int64_t k = node.attributes.as<TopKAttributes>().k();
  return static_cast<uint64_t>(gathered(k)) * threads.count() * sizeof(int32_t);
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_max, .run = run_reduce<T, true>);
BOWLINE_KERNELS_OF_NUMBERS(reduce_min, .run = run_reduce<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(arg_max, .run = run_arg<T, true>);
BOWLINE_KERNELS_OF_NUMBERS(arg_min, .run = run_arg<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(top_k, .run = run_top_k<T>, .workspace = top_k_workspace);

}  // namespace bowline::detail::cpu::extreme_kernels
