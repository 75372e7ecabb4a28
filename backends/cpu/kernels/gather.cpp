//! ops(any) Gather GatherElements OneHot ScatterElements
// Elements along an axis selected by indices, and the reverse. Negative indices count from the end.
#include <algorithm>
#include <cstring>

#include "compute/convert.h"
#include "core/element_types.h"
#include "rows.h"

namespace bowline::detail::cpu::gather_kernels {
namespace {

constexpr int64_t kGrain = 16384;

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

// y[i] = data[i . data_strides + element(indices[i . index_strides]) * axis_stride], and 0 if the
// index is out of range.
void gather(const Launch& l, const Strides& all_data_strides, const Strides& all_index_strides,
            int64_t n, int64_t axis_stride) {
  const Shape& all = *l.out[0].shape;
  if (all.elements() == 0) {
    return;
  }
  // Without axes of size 1, so that a row covers as many elements as possible.
  Shape y;
  Strides data_strides{}, index_strides{};
  for (int a = 0; a < all.rank(); ++a) {
    if (all[a] != 1) {
      data_strides[static_cast<size_t>(y.rank())] = all_data_strides[static_cast<size_t>(a)];
      index_strides[static_cast<size_t>(y.rank())] = all_index_strides[static_cast<size_t>(a)];
      y.push_back(all[a]);
    }
  }
  const bool inside = check(l, l.in[1], n);
  const int64_t length = y.rank() == 0 ? 1 : y.back();
  const int64_t step = row_step(y, data_strides);
  const int64_t index_step = row_step(y, index_strides);
  const int32_t* const indices = l.in[1].i32();
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T* const data = l.in[0].as<const T>();
    T* const out = l.out[0].as<T>();
    for_rows(l.threads, y, std::array{data_strides, index_strides}, kGrain,
             [=](int64_t row, const std::array<int64_t, 2>& at) {
               T* to = out + row * length;
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

void run_gather(const Launch& l) {
  const Shape& data = *l.in[0].shape;
  const int axis = positive_axis(l.attributes<GatherAttributes>().axis(), data.rank());
  const int chosen = l.in[1].shape->rank();  // axes of y that come from the indices
  const Strides of_data = strides_of(data);
  const Strides of_indices = strides_of(*l.in[1].shape);
  Strides data_strides{};
  Strides index_strides{};
  for (int a = 0; a < l.out[0].shape->rank(); ++a) {
    const auto to = static_cast<size_t>(a);
    if (a < axis) {
      data_strides[to] = of_data[to];
    } else if (a < axis + chosen) {
      index_strides[to] = of_indices[static_cast<size_t>(a - axis)];
    } else {
      data_strides[to] = of_data[static_cast<size_t>(a - chosen + 1)];
    }
  }
  gather(l, data_strides, index_strides, data[axis], of_data[static_cast<size_t>(axis)]);
}

void run_gather_elements(const Launch& l) {
  const Shape& data = *l.in[0].shape;
  const auto axis =
      static_cast<size_t>(positive_axis(l.attributes<GatherAttributes>().axis(), data.rank()));
  Strides strides = strides_of(data);
  const int64_t axis_stride = strides[axis];
  strides[axis] = 0;
  gather(l, strides, strides_of(*l.in[1].shape), data[static_cast<int>(axis)], axis_stride);
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
    parallel_blocks(l.threads, y.elements(0, axis),
                    std::max<int64_t>(1, kGrain / std::max<int64_t>(1, block)),
                    [=](int64_t begin, int64_t end) {
                      std::fill(out + begin * block, out + end * block, T{});
                      for (int64_t i = begin * inner; i < end * inner; ++i) {
                        const int64_t e = element(indices[i], depth);
                        if (e >= 0) {
                          out[i / inner * block + e * inner + i % inner] = one;
                        }
                      }
                    });
  });
}

// y[.., element, ..] = join(itself, update), line by line along the axis, in the order of the
// updates.
template <class Y, class U, class F>
void scatter(const Launch& l, Y* y, const U* updates, F&& join) {
  const Shape& data = *l.in[0].shape;
  const Shape& shape = *l.in[2].shape;
  if (shape.elements() == 0) {
    return;
  }
  const auto axis = static_cast<size_t>(
      positive_axis(l.attributes<ScatterElementsAttributes>().axis(), data.rank()));
  const int64_t n = data[static_cast<int>(axis)];
  const int64_t count = shape[static_cast<int>(axis)];
  check(l, l.in[1], n);
  const std::array strides = {strides_of(data), broadcast_strides(*l.in[1].shape, shape),
                              strides_of(shape)};
  const int32_t* const indices = l.in[1].i32();
  const int64_t lines = shape.elements() / count;
  parallel_blocks(l.threads, lines, std::max<int64_t>(1, kGrain / count),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t line = begin; line < end; ++line) {
                      std::array<int64_t, 3> at{};
                      int64_t rest = line;
                      for (int a = shape.rank() - 1; a >= 0; --a) {
                        if (static_cast<size_t>(a) == axis) {
                          continue;
                        }
                        for (size_t k = 0; k < 3; ++k) {
                          at[k] += rest % shape[a] * strides[k][static_cast<size_t>(a)];
                        }
                        rest /= shape[a];
                      }
                      for (int64_t i = 0; i < count; ++i) {
                        const int64_t e = element(indices[at[1] + i * strides[1][axis]], n);
                        if (e >= 0) {
                          Y& to = y[at[0] + e * strides[0][axis]];
                          to = join(to, updates[at[2] + i * strides[2][axis]]);
                        }
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
  const bool replaces =
      node.attributes.as<ScatterElementsAttributes>().reduction() == ScatterReduction::none;
  const bool narrow = node.type == DType::f16 || node.type == DType::bf16;
  return narrow && !replaces
             ? static_cast<uint64_t>(node.outputs[0].shape.elements()) * sizeof(float)
             : 0;
}

}  // namespace

BOWLINE_KERNEL(gather, .run = run_gather);
BOWLINE_KERNEL(gather_elements, .run = run_gather_elements);
BOWLINE_KERNEL(one_hot, .run = run_one_hot);
BOWLINE_KERNEL(scatter_elements, .run = run_scatter, .workspace = scatter_workspace);

}  // namespace bowline::detail::cpu::gather_kernels
