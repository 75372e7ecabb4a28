//! ops(any) Gather GatherElements OneHot ScatterElements
// Elements along an axis selected by indices, and the reverse. Negative indices count from the end.
#include <algorithm>
#include <cstring>

#include "compute/convert.h"
#include "core/element_types.h"
#include "core/indices.h"
#include "rows.h"

namespace bowline::detail::cpu::gather_kernels {
namespace {

// The element number of an index, or -1 if the index is out of range.
int64_t element(int32_t index, int64_t n) {
  const int64_t at = index < 0 ? index + n : index;
  return at >= 0 && at < n ? at : -1;
}

// True if all indices are valid. Reports the first out-of-range index.
bool check(const Launch& l, const Arg& indices, int64_t n) {
  const int64_t count = indices.elements();
  const int32_t* const all = indices.i32();
  int64_t outside = 0;
  for (int64_t i = 0; i < count; ++i) {
    outside += all[i] >= n || all[i] < -n ? 1 : 0;
  }
  for (int64_t i = 0; i < count && outside > 0; ++i) {
    if (element(all[i], n) < 0) {
      l.bad_index(all[i]);
    }
  }
  return outside == 0;
}

// Writes 0 if an index is out of range.
void run_gather(const Launch& l) {
  if (l.out[0].elements() == 0) {
    return;
  }
  const GatherLoops g = gather_loops_of(l.record);
  const int64_t n = g.n, axis_stride = g.stride;
  const bool inside = check(l, l.in[1], n);
  const int64_t step = row_step(g.loops, 0);
  const int64_t index_step = row_step(g.loops, 1);
  const int32_t* const indices = l.in[1].i32();
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T* const data = l.in[0].as<const T>();
    T* const out = l.out[0].as<T>();
    for_rows(l.threads, g.loops, [=](int64_t at_out, int64_t length, const int64_t* at) {
      T* to = out + at_out;
      const int64_t first = element(indices[at[1]], n);
      if (index_step == 0 && step == 1 && first >= 0) {
        std::memcpy(to, data + at[0] + first * axis_stride,
                    static_cast<size_t>(length) * sizeof(T));
        return;
      }
      const T* const from = data + at[0];
      const int32_t* const index = indices + at[1];
      for (int64_t i = 0; i < length && inside; ++i) {
        const int64_t e = index[i * index_step];
        to[i] = from[i * step + (e < 0 ? e + n : e) * axis_stride];
      }
      for (int64_t i = 0; i < length && !inside; ++i) {
        const int64_t e = element(index[i * index_step], n);
        to[i] = e < 0 ? T{} : from[i * step + e * axis_stride];
      }
    });
  });
}

void run_one_hot(const Launch& l) {
  const Shape& y = *l.out[0].shape;
  const int axis = positive_axis(l.attributes<OneHotAttributes>().axis(), y.rank());
  const int64_t depth = y[axis];
  const int64_t inner = y.elements(axis + 1, y.rank());
  const int32_t* const indices = l.in[0].i32();
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T one = static_cast<T>(stored_bits(l.record.type, 1));
    T* const out = l.out[0].as<T>();
    const int64_t block = depth * inner;
    parallel_rows(l.threads, y.elements(0, axis), block, [=](int64_t row) {
      T* const to = out + row * block;
      std::fill_n(to, block, T{});
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t e = element(indices[row * inner + i], depth);
        if (e >= 0) {
          to[e * inner + i] = one;
        }
      }
    });
  });
}

// y[.., element, ..] = join(itself, update), line by line along the axis, in the order of the
// updates.
template <class Y, class U, class F>
void scatter(const Launch& l, Y* y, const U* updates, F&& join) {
  if (l.in[2].elements() == 0) {
    return;
  }
  const ScatterLines s = scatter_lines_of(l.record);
  const int64_t n = s.n, count = static_cast<int64_t>(s.count);
  check(l, l.in[1], n);
  const int32_t* const indices = l.in[1].i32();
  parallel_rows(l.threads, static_cast<int64_t>(s.lines.elements()), count, [&](int64_t line) {
    int64_t at[3];
    s.lines.offsets(static_cast<uint64_t>(line), at);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t e = element(indices[at[1] + i * s.steps[1]], n);
      if (e >= 0) {
        Y& to = y[at[0] + e * s.steps[0]];
        to = join(to, updates[at[2] + i * s.steps[2]]);
      }
    }
  });
}

void copy_data(const Launch& l) {
  const std::byte* from = l.in[0].data;
  std::byte* to = l.out[0].data;
  if (from == to) {
    return;
  }
  parallel_blocks(
      l.threads, static_cast<int64_t>(l.record.outputs[0].bytes()), 4 * kGrain,
      [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
}

// Sums and products of integers wrap around. NaN is kept.
template <class A, class U, class Widen>
void scatter_numbers(const Launch& l, A* y, const U* updates, Widen&& widen) {
  const auto with = [&](auto join) {
    scatter(l, y, updates, [&](A a, U u) { return join(a, widen(u)); });
  };
  const auto wraps = [](auto f) {
    return [f](A a, A b) {
      if constexpr (std::is_integral_v<A>) {
        return static_cast<A>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
      } else {
        return f(a, b);
      }
    };
  };
  switch (l.attributes<ScatterElementsAttributes>().reduction()) {
    case ScatterReduction::none:
      return;
    case ScatterReduction::add:
      return with(wraps([](auto a, auto b) { return a + b; }));
    case ScatterReduction::mul:
      return with(wraps([](auto a, auto b) { return a * b; }));
    case ScatterReduction::max:
      return with([](A a, A b) { return a != a || a > b ? a : b; });
    case ScatterReduction::min:
      return with([](A a, A b) { return a != a || a < b ? a : b; });
  }
}

// f16 and bf16 are combined in f32; the workspace holds the data as f32.
void run_scatter(const Launch& l) {
  if (l.attributes<ScatterElementsAttributes>().reduction() == ScatterReduction::none) {
    copy_data(l);
    with_bits(size_of(l.record.type), [&]<class T>() {
      scatter(l, l.out[0].as<T>(), l.in[2].as<const T>(), [](T, T update) { return update; });
    });
    return;
  }
  with_type(l.record.type, [&]<class T>() {
    if constexpr (std::same_as<T, f16> || std::same_as<T, bf16>) {
      auto* const wide = reinterpret_cast<float*>(l.workspace);
      const auto n = static_cast<size_t>(l.out[0].elements());
      widen(l.threads, n, l.in[0].as<const T>(), wide);
      scatter_numbers(l, wide, l.in[2].as<const T>(), [](T x) { return to_f32(x); });
      narrow(l.threads, n, wide, l.out[0].as<T>());
    } else if constexpr (!std::same_as<T, Truth>) {
      copy_data(l);
      scatter_numbers(l, l.out[0].as<T>(), l.in[2].as<const T>(), [](T x) { return x; });
    }
  });
}

uint64_t scatter_workspace(const device::NodeQuery& node, const Threads&) {
  return scatter_wide_bytes(node);
}

}  // namespace

BOWLINE_KERNEL(gather, .run = run_gather);
BOWLINE_KERNEL(gather_elements, .run = run_gather);
BOWLINE_KERNEL(one_hot, .run = run_one_hot);
BOWLINE_KERNEL(scatter_elements, .run = run_scatter, .workspace = scatter_workspace);

}  // namespace bowline::detail::cpu::gather_kernels
