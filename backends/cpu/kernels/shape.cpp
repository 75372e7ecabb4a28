//! ops(any) Copy Fill Transpose Slice SliceGrad Concat Split BroadcastTo Expand WriteRows MaskTail
//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo
// Operators that move elements or sum over axes: index arithmetic, one output element or row at a time.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "core/element_types.h"
#include "core/float16.h"
#include "rows.h"

namespace bowline::detail::cpu::shape_kernels {
namespace {

constexpr int64_t kGrain = 16384;

void run_copy(const Launch& l) {
  const std::byte* from = l.in[0].data;
  std::byte* to = l.out[0].data;
  const auto bytes = static_cast<int64_t>(l.record.outputs[0].bytes());
  if (from != to) {
    parallel_blocks(l.threads, bytes, kGrain * 4, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  }
}

void run_fill(const Launch& l) {
  const uint64_t bits = stored_bits(l.record.type, l.attributes<FillAttributes>().value());
  with_bits(size_of(l.record.type), [&]<class T>() {
    T* const y = l.out[0].as<T>();
    parallel_blocks(l.threads, l.out[0].elements(), kGrain, [&](int64_t begin, int64_t end) {
      std::fill(y + begin, y + end, static_cast<T>(bits));
    });
  });
}

// y[i] = x[sum of index * stride]: a gather with one stride per output axis, rows of the last axis in the inner loop.
void gather(const Launch& l, const Strides& stride) {
  const Shape& out = *l.out[0].shape;
  const int64_t n = out.rank() == 0 ? 1 : out.back();
  const int64_t inner = row_step(out, stride);
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T* const x = l.in[0].as<const T>();
    T* const y = l.out[0].as<T>();
    for_rows(l.threads, out, std::array<Strides, 1>{stride}, kGrain,
             [=](int64_t row, const std::array<int64_t, 1>& at) {
               T* to = y + row * n;
               const T* from = x + at[0];
               if (inner == 1) {
                 std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
               } else {
                 for (int64_t i = 0; i < n; ++i) {
                   to[i] = from[i * inner];
                 }
               }
             });
  });
}

// The permutation as a swap of two runs of neighbouring axes: x [batch, rows, columns] -> y [batch, columns, rows].
struct Swap {
  int64_t batch = 1, rows = 1, columns = 1;
};
std::optional<Swap> swap_of(const Shape& x, const flatbuffers::Vector<int32_t>& permutation) {
  const int rank = x.rank();
  const auto at = [&](int a) { return permutation.Get(static_cast<flatbuffers::uoffset_t>(a)); };
  int first = 0;
  while (first < rank && at(first) == first) {
    ++first;
  }
  if (first == rank) {
    return std::nullopt;  // a copy
  }
  const int middle = at(first);
  for (int a = first; a < rank; ++a) {
    const int turned = a + middle - first;
    if (at(a) != (turned < rank ? turned : turned - rank + first)) {
      return std::nullopt;
    }
  }
  return Swap{x.elements(0, first), x.elements(first, middle), x.elements(middle, rank)};
}

// In squares, whose rows and columns stay in a cache.
template <class T>
void transpose_squares(Threads& threads, const Swap& s, const T* x, T* y) {
  constexpr int64_t kSide = 32;
  const int64_t strips = (s.columns + kSide - 1) / kSide;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, kSide * s.rows));
  parallel_blocks(threads, s.batch * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t n = strip / strips, first = strip % strips * kSide;
      const int64_t last = std::min(first + kSide, s.columns);
      const T* const from = x + n * s.rows * s.columns;
      T* const to = y + n * s.rows * s.columns;
      for (int64_t top = 0; top < s.rows; top += kSide) {
        const int64_t bottom = std::min(top + kSide, s.rows);
        for (int64_t k = first; k < last; ++k) {
          for (int64_t j = top; j < bottom; ++j) {
            to[k * s.rows + j] = from[j * s.columns + k];
          }
        }
      }
    }
  });
}

void run_transpose(const Launch& l) {
  const auto* permutation = l.attributes<TransposeAttributes>().permutation();
  if (const std::optional<Swap> swap = swap_of(*l.in[0].shape, *permutation)) {
    return with_bits(size_of(l.record.type), [&]<class T>() {
      transpose_squares(l.threads, *swap, l.in[0].as<const T>(), l.out[0].as<T>());
    });
  }
  const Strides from = strides_of(*l.in[0].shape);
  Strides stride{};
  for (int a = 0; a < l.out[0].shape->rank(); ++a) {
    stride[static_cast<size_t>(a)] =
        from[static_cast<size_t>(permutation->Get(static_cast<flatbuffers::uoffset_t>(a)))];
  }
  gather(l, stride);
}

void run_broadcast(const Launch& l) {
  gather(l, broadcast_strides(*l.in[0].shape, *l.out[0].shape));
}

// The axis as outer x axis x inner blocks; `inner` in bytes.
struct Blocks {
  int64_t outer;
  int64_t inner;
};
Blocks around(const Launch& l, const Shape& s, int axis) {
  return {s.elements(0, axis),
          s.elements(axis + 1, s.rank()) * static_cast<int64_t>(size_of(l.record.type))};
}

// Row r of `size` bytes goes from x + r * step_x to y + r * step_y.
void copy_rows(Threads& threads, int64_t rows, int64_t size, const std::byte* x, int64_t step_x,
               std::byte* y, int64_t step_y) {
  parallel_blocks(threads, rows, std::max<int64_t>(1, 4 * kGrain / std::max<int64_t>(1, size)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t r = begin; r < end; ++r) {
                      std::copy_n(x + r * step_x, size, y + r * step_y);
                    }
                  });
}

void run_slice(const Launch& l) {
  const auto& t = l.attributes<SliceAttributes>();
  const Shape& in = *l.in[0].shape;
  const int axis = positive_axis(t.axis(), in.rank());
  const auto [outer, inner] = around(l, in, axis);
  const int64_t size = (*l.out[0].shape)[axis] * inner;
  copy_rows(l.threads, outer, size, l.in[0].data + t.start() * inner, in[axis] * inner,
            l.out[0].data, size);
}

void run_slice_grad(const Launch& l) {
  const auto& t = l.attributes<SliceGradAttributes>();
  const Shape& out = *l.out[0].shape;
  const int axis = positive_axis(t.axis(), out.rank());
  const auto [outer, inner] = around(l, out, axis);
  const int64_t size = (*l.in[0].shape)[axis] * inner;
  const int64_t start = t.start() * inner;
  const int64_t step = out[axis] * inner;
  const std::byte* dy = l.in[0].data;
  std::byte* dx = l.out[0].data;
  parallel_blocks(l.threads, outer, std::max<int64_t>(1, 4 * kGrain / std::max<int64_t>(1, step)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t o = begin; o < end; ++o) {
                      std::byte* row = dx + o * step;
                      std::fill_n(row, start, std::byte{0});
                      std::copy_n(dy + o * size, size, row + start);
                      std::fill(row + start + size, row + step, std::byte{0});
                    }
                  });
}

void run_concat(const Launch& l) {
  const Shape& out = *l.out[0].shape;
  const int axis = positive_axis(l.attributes<ConcatAttributes>().axis(), out.rank());
  const auto [outer, inner] = around(l, out, axis);
  const int64_t step = out[axis] * inner;
  int64_t start = 0;
  for (const Arg& in : l.in) {
    const int64_t size = (*in.shape)[axis] * inner;
    copy_rows(l.threads, outer, size, in.data, size, l.out[0].data + start, step);
    start += size;
  }
}

void run_split(const Launch& l) {
  const Shape& in = *l.in[0].shape;
  const int axis = positive_axis(l.attributes<SplitAttributes>().axis(), in.rank());
  const auto [outer, inner] = around(l, in, axis);
  const int64_t step = in[axis] * inner;
  int64_t start = 0;
  for (const Arg& out : l.out) {
    const int64_t size = (*out.shape)[axis] * inner;
    copy_rows(l.threads, outer, size, l.in[0].data + start, step, out.data, size);
    start += size;
  }
}

// Rows [position, position + count) of every outer element of a state of codes: `inner` rows of codes each.
template <class T>
void write_codes(const Launch& l, int axis, int64_t position, int64_t count) {
  const CodeLayout layout = l.codes(0).layout;
  const Shape& rows = *l.in[1].shape;
  const int64_t size = (*l.in[0].shape)[axis];
  const int64_t inner = rows.elements(axis + 1, rows.rank() - 1);
  const T* const from = l.in[1].as<const T>();
  parallel_blocks(l.threads, rows.elements(0, axis) * count * inner,
                  std::max<int64_t>(1, kGrain / std::max<int64_t>(1, rows.back())),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t outer = i / (count * inner);
                      const int64_t at = i % (count * inner);
                      const int64_t row = outer * rows[axis] * inner + at;
                      encode(layout, from + row * rows.back(),
                             static_cast<size_t>((outer * size + position) * inner + at),
                             l.out[0].data, l.out[0].scales);
                    }
                  });
}

// The state lies where the output does.
void run_write_rows(const Launch& l) {
  const Shape& state = *l.in[0].shape;
  const int axis = positive_axis(l.attributes<WriteRowsAttributes>().axis(), state.rank());
  const int64_t position = l.step(step::write_rows::position);
  const int64_t rows = l.extent(1, axis);
  if (position + rows > state[axis]) {
    l.bad_index(static_cast<int32_t>(
        std::min<int64_t>(position + std::max<int64_t>(rows, 1) - 1, INT32_MAX)));
    return;
  }
  if (l.is_encoded(0)) {
    const DType type = l.record.type;
    (type == DType::f16    ? write_codes<f16>
     : type == DType::bf16 ? write_codes<bf16>
                           : write_codes<float>)(l, axis, position, rows);
    return;
  }
  const auto [outer, row] = around(l, state, axis);
  copy_rows(l.threads, outer, rows * row, l.in[1].data, (*l.in[1].shape)[axis] * row,
            l.out[0].data + position * row, state[axis] * row);
}

void run_mask_tail(const Launch& l) {
  const auto& t = l.attributes<MaskTailAttributes>();
  const Shape& shape = *l.in[0].shape;
  const int axis = positive_axis(t.axis(), shape.rank());
  const int64_t outer = shape.elements(0, axis);
  const int64_t inner = shape.elements(axis + 1, shape.rank());
  const int64_t size = shape[axis] * inner;
  const int64_t kept = l.extent(0, axis) * inner;
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T fill = static_cast<T>(stored_bits(l.record.type, t.fill()));
    const T* x = l.in[0].as<const T>();
    T* y = l.out[0].as<T>();
    parallel_blocks(l.threads, outer, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, size)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t o = begin; o < end; ++o) {
                        if (x != y) {
                          std::copy_n(x + o * size, kept, y + o * size);
                        }
                        std::fill(y + o * size + kept, y + (o + 1) * size, fill);
                      }
                    });
  });
}

// Sums x over the axes in `reduced`. Three forms, by what is adjacent: columns of a matrix (the leading axes go), rows (the
// trailing axes go), and the general one with an index walk per output element.
template <class T>
void sum_axes(Threads& threads, const T* x, T* y, const Shape& in, const Axes& reduced,
              float scale) {
  int64_t outputs = 1;
  for (int a = 0; a < in.rank(); ++a) {
    outputs *= reduced[static_cast<size_t>(a)] ? 1 : in[a];
  }
  if (outputs == 0) {
    return;
  }
  int lead = 0;
  while (lead < in.rank() && (reduced[static_cast<size_t>(lead)] || in[lead] == 1)) {
    ++lead;
  }
  const bool columns =
      std::none_of(reduced.begin() + lead, reduced.begin() + in.rank(), [](bool r) { return r; });
  if (columns) {
    // Fixed blocks of columns; each sums its column top down in blocks of rows, so that the bits do not depend on threads.
    const int64_t rows = in.elements(0, lead);
    parallel_blocks(threads, outputs, 64, [&](int64_t begin, int64_t end) {
      double sums[64] = {};
      for (int64_t r = 0; r < rows; ++r) {
        const T* row = x + r * outputs;
        for (int64_t c = begin; c < end; ++c) {
          sums[c - begin] += static_cast<double>(to_f32(row[c]));
        }
      }
      for (int64_t c = begin; c < end; ++c) {
        y[c] = from_f32<T>(static_cast<float>(sums[c - begin] * static_cast<double>(scale)));
      }
    });
    return;
  }
  const Strides strides = strides_of(in);
  parallel_blocks(threads, outputs, 16, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      int64_t rest = o;
      int64_t base = 0;
      int64_t terms = 1;
      for (int a = in.rank() - 1; a >= 0; --a) {
        if (reduced[static_cast<size_t>(a)]) {
          terms *= in[a];
        } else {
          base += rest % in[a] * strides[static_cast<size_t>(a)];
          rest /= in[a];
        }
      }
      double sum = 0;
      for (int64_t t = 0; t < terms; ++t) {
        int64_t left = t;
        int64_t at = base;
        for (int a = in.rank() - 1; a >= 0; --a) {
          if (reduced[static_cast<size_t>(a)]) {
            at += left % in[a] * strides[static_cast<size_t>(a)];
            left /= in[a];
          }
        }
        sum += static_cast<double>(to_f32(x[at]));
      }
      y[o] = from_f32<T>(static_cast<float>(sum * static_cast<double>(scale)));
    }
  });
}

template <class T>
void run_sum_to(const Launch& l) {
  const Shape& in = *l.in[0].shape;
  sum_axes(l.threads, l.in[0].as<const T>(), l.out[0].as<T>(), in,
           stretched_axes(in, *l.out[0].shape), 1);
}

Axes reduced_axes(const Launch& l) {
  const auto* axes = l.attributes<ReduceAttributes>().axes();
  return named_axes({axes->data(), axes->size()}, l.in[0].shape->rank());
}

template <class T>
void run_reduce_sum(const Launch& l) {
  sum_axes(l.threads, l.in[0].as<const T>(), l.out[0].as<T>(), *l.in[0].shape, reduced_axes(l), 1);
}

template <class T>
void run_reduce_mean(const Launch& l) {
  const Shape& in = *l.in[0].shape;
  const Axes reduced = reduced_axes(l);
  int64_t terms = 1;
  for (int axis = 0; axis < in.rank(); ++axis) {
    terms *= reduced[static_cast<size_t>(axis)] ? in[axis] : 1;
  }
  sum_axes(l.threads, l.in[0].as<const T>(), l.out[0].as<T>(), in, reduced,
           1.0f / static_cast<float>(terms));
}

}  // namespace

extern const Kernel kernel_copy, kernel_write_rows, kernel_mask_tail, kernel_fill, kernel_transpose,
    kernel_slice, kernel_slice_grad, kernel_concat, kernel_split, kernel_broadcast_to,
    kernel_expand, kernel_sum_to, kernel_sum_to_f16, kernel_sum_to_bf16, kernel_reduce_sum,
    kernel_reduce_sum_f16, kernel_reduce_sum_bf16, kernel_reduce_mean, kernel_reduce_mean_f16,
    kernel_reduce_mean_bf16;
const Kernel kernel_copy{.run = run_copy};
const Kernel kernel_write_rows{.run = run_write_rows, .encoded = 0b1};
const Kernel kernel_mask_tail{.run = run_mask_tail};
const Kernel kernel_fill{.run = run_fill};
const Kernel kernel_transpose{.run = run_transpose};
const Kernel kernel_slice{.run = run_slice};
const Kernel kernel_slice_grad{.run = run_slice_grad};
const Kernel kernel_concat{.run = run_concat};
const Kernel kernel_split{.run = run_split};
const Kernel kernel_broadcast_to{.run = run_broadcast};
const Kernel kernel_expand{.run = run_broadcast};
const Kernel kernel_sum_to{.run = run_sum_to<float>};
const Kernel kernel_sum_to_f16{.run = run_sum_to<f16>};
const Kernel kernel_sum_to_bf16{.run = run_sum_to<bf16>};
const Kernel kernel_reduce_sum{.run = run_reduce_sum<float>};
const Kernel kernel_reduce_sum_f16{.run = run_reduce_sum<f16>};
const Kernel kernel_reduce_sum_bf16{.run = run_reduce_sum<bf16>};
const Kernel kernel_reduce_mean{.run = run_reduce_mean<float>};
const Kernel kernel_reduce_mean_f16{.run = run_reduce_mean<f16>};
const Kernel kernel_reduce_mean_bf16{.run = run_reduce_mean<bf16>};

}  // namespace bowline::detail::cpu::shape_kernels
