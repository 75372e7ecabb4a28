//! ops(any) Copy Fill Transpose Slice SliceGrad Concat Split BroadcastTo Expand WriteRows MaskTail
//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo
// Operators that move elements or sum over axes. They mostly compute indices, per element or per
// row.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/float16.h"
#include "core/element_types.h"
#include "core/moves.h"
#include "reduction.h"

namespace bowline::detail::cpu::shape_kernels {
namespace {

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

// y[at . strides 1] = x[at . strides 0]. The inner loop copies rows of the last axis.
template <class T>
void copy(Threads& threads, const T* x, T* y, const Loops<2>& loops) {
  const int64_t step_x = row_step(loops, 0), step_y = row_step(loops, 1);
  for_rows(threads, loops, [=](int64_t, int64_t n, const int64_t* at) {
    const T* const from = x + at[0];
    T* const to = y + at[1];
    if (step_x == 1 && step_y == 1) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) {
        to[i * step_y] = from[i * step_x];
      }
    }
  });
}

void run_moves(const Launch& l) {
  with_bits(size_of(l.record.type), [&]<class T>() {
    for_each_move(l.record, [&l](const Move& m) {
      copy(l.threads, l.in[m.input].as<const T>() + m.first_x, l.out[m.output].as<T>() + m.first_y,
           m.loops);
    });
  });
}

// The permutation as a swap of two runs of neighbouring axes: x [batch, rows, columns] -> y [batch,
// columns, rows].
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

// Transposes square tiles that fit into the cache.
template <class T>
void transpose_squares(Threads& threads, const Swap& s, const T* x, T* y) {
  constexpr int64_t kSide = 32;
  const int64_t strips = (s.columns + kSide - 1) / kSide;
  parallel_rows(threads, s.batch * strips, kSide * s.rows, [=](int64_t strip) {
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
  });
}

void run_transpose(const Launch& l) {
  const auto* permutation = l.attributes<TransposeAttributes>().permutation();
  if (const std::optional<Swap> swap = swap_of(*l.in[0].shape, *permutation)) {
    return with_bits(size_of(l.record.type), [&]<class T>() {
      transpose_squares(l.threads, *swap, l.in[0].as<const T>(), l.out[0].as<T>());
    });
  }
  run_moves(l);
}

// Each row of dx is a row of dy between zeros.
void run_slice_grad(const Launch& l) {
  const auto& t = l.attributes<SliceGradAttributes>();
  const Shape& out = *l.out[0].shape;
  const int axis = positive_axis(t.axis(), out.rank());
  const int64_t inner = out.elements(axis + 1, out.rank());
  const int64_t step = out[axis] * inner, size = (*l.in[0].shape)[axis] * inner;
  const int64_t start = t.start() * inner;
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T* const dy = l.in[0].as<const T>();
    T* const dx = l.out[0].as<T>();
    parallel_rows(l.threads, out.elements(0, axis), step, [=](int64_t row) {
      T* const to = dx + row * step;
      std::fill_n(to, start, T{});
      std::copy_n(dy + row * size, size, to + start);
      std::fill(to + start + size, to + step, T{});
    });
  });
}

// Quantizes rows [position, position + count) of every outer element of a quantized state; each has
// `inner` quantized rows.
template <class T>
void write_codes(const Launch& l, int axis, int64_t position, int64_t count) {
  const CodeLayout layout = l.codes(0).layout;
  const Shape& rows = *l.in[1].shape;
  const int64_t size = (*l.in[0].shape)[axis];
  const int64_t inner = rows.elements(axis + 1, rows.rank() - 1);
  const T* const from = l.in[1].as<const T>();
  parallel_rows(l.threads, rows.elements(0, axis) * count * inner, rows.back(), [&](int64_t i) {
    const int64_t outer = i / (count * inner);
    const int64_t at = i % (count * inner);
    const int64_t row = outer * rows[axis] * inner + at;
    encode(layout, from + row * rows.back(),
           static_cast<size_t>((outer * size + position) * inner + at), l.out[0].data,
           l.out[0].scales);
  });
}

// The state is updated in place, in the memory of the output.
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
  const int64_t row = state.elements(axis + 1, state.rank());
  Loops<2> written;
  written.add(state.elements(0, axis), {(*l.in[1].shape)[axis] * row, state[axis] * row});
  written.add(rows * row, {1, 1});
  with_bits(size_of(l.record.type), [&]<class T>() {
    copy(l.threads, l.in[1].as<const T>(), l.out[0].as<T>() + position * row, written);
  });
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
    parallel_rows(l.threads, outer, size, [=](int64_t row) {
      if (x != y) {
        std::copy_n(x + row * size, kept, y + row * size);
      }
      std::fill(y + row * size + kept, y + (row + 1) * size, fill);
    });
  });
}

// Sums contiguous rows, several rows at a time, because each addition waits for the previous
// addition of its row.
template <class T>
void sum_rows(Threads& threads, const T* x, T* y, int64_t rows, int64_t terms, double scale) {
  constexpr int64_t kTogether = 4;
  parallel_blocks(threads, rows, std::max(kTogether, kGrain / std::max<int64_t>(1, terms)),
                  [=](int64_t begin, int64_t end) {
                    for (int64_t r = begin; r < end; r += kTogether) {
                      const int64_t some = std::min(kTogether, end - r);
                      double sums[kTogether] = {};
                      const T* const from = x + r * terms;
                      for (int64_t t = 0; t < terms && some == kTogether; ++t) {
                        for (int64_t i = 0; i < kTogether; ++i) {
                          sums[i] += static_cast<double>(to_f32(from[i * terms + t]));
                        }
                      }
                      for (int64_t i = 0; i < some; ++i) {
                        for (int64_t t = 0; t < terms && some < kTogether; ++t) {
                          sums[i] += static_cast<double>(to_f32(from[i * terms + t]));
                        }
                        y[r + i] = from_f32<T>(static_cast<float>(sums[i] * scale));
                      }
                    }
                  });
}

// Sums the columns of `matrices` contiguous matrices. Each column is summed from top to bottom,
// several columns at a time.
template <class T>
void sum_columns(Threads& threads, const T* x, T* y, int64_t matrices, int64_t terms,
                 int64_t columns, double scale) {
  constexpr int64_t kTogether = 64;
  const int64_t strips = (columns + kTogether - 1) / kTogether;
  const int64_t work = terms * std::min(columns, kTogether);
  parallel_rows(threads, matrices * strips, work, [=](int64_t i) {
    const int64_t begin = i % strips * kTogether;
    const int64_t some = std::min(kTogether, columns - begin);
    const T* row = x + i / strips * terms * columns + begin;
    double sums[kTogether] = {};
    for (int64_t t = 0; t < terms; ++t, row += columns) {
      for (int64_t c = 0; c < some; ++c) {
        sums[c] += static_cast<double>(to_f32(row[c]));
      }
    }
    for (int64_t c = 0; c < some; ++c) {
      y[i / strips * columns + begin + c] = from_f32<T>(static_cast<float>(sums[c] * scale));
    }
  });
}

// Sums x over the axes in `reduced`. The elements of each output are added in row-major order, so
// that the bits do not depend on the threads. The reduced axes are usually neighbours.
template <class T>
void sum_axes(Threads& threads, const T* x, T* y, const Shape& in, const Axes& reduced,
              float factor) {
  const auto scale = static_cast<double>(factor);
  int64_t elements[3] = {1, 1, 1};  // elements before, in and behind the reduced axes
  size_t part = 0;
  bool neighbours = true;
  for (int a = 0; a < in.rank(); ++a) {
    if (in[a] != 1) {
      const bool goes = reduced[static_cast<size_t>(a)];
      neighbours = neighbours && !(goes && part == 2);
      part = goes ? 1 : part == 0 ? 0 : 2;
      elements[part] *= in[a];
    }
  }
  const auto [outer, terms, inner] = elements;
  if (!neighbours) {
    for_reductions(threads, in, reduced, [=](int64_t output, auto walk) {
      double sum = 0;
      walk([&](int64_t at) { sum += static_cast<double>(to_f32(x[at])); });
      y[output] = from_f32<T>(static_cast<float>(sum * scale));
    });
  } else if (inner == 1) {
    sum_rows(threads, x, y, outer, terms, scale);
  } else {
    sum_columns(threads, x, y, outer, terms, inner, scale);
  }
}

template <class T>
void run_sum_to(const Launch& l) {
  const Shape& in = *l.in[0].shape;
  sum_axes(l.threads, l.in[0].as<const T>(), l.out[0].as<T>(), in,
           stretched_axes(in, *l.out[0].shape), 1);
}

template <class T>
void run_reduce_sum(const Launch& l) {
  sum_axes(l.threads, l.in[0].as<const T>(), l.out[0].as<T>(), *l.in[0].shape, named_axes_of(l), 1);
}

template <class T>
void run_reduce_mean(const Launch& l) {
  const Shape& in = *l.in[0].shape;
  const Axes reduced = named_axes_of(l);
  int64_t terms = 1;
  for (int axis = 0; axis < in.rank(); ++axis) {
    terms *= reduced[static_cast<size_t>(axis)] ? in[axis] : 1;
  }
  sum_axes(l.threads, l.in[0].as<const T>(), l.out[0].as<T>(), in, reduced,
           1.0f / static_cast<float>(terms));
}

}  // namespace

BOWLINE_KERNEL(copy, .run = run_copy);
BOWLINE_KERNEL(write_rows, .run = run_write_rows, .encoded = 0b1);
BOWLINE_KERNEL(mask_tail, .run = run_mask_tail);
BOWLINE_KERNEL(fill, .run = run_fill);
BOWLINE_KERNEL(transpose, .run = run_transpose);
BOWLINE_KERNEL(slice, .run = run_moves);
BOWLINE_KERNEL(slice_grad, .run = run_slice_grad);
BOWLINE_KERNEL(concat, .run = run_moves);
BOWLINE_KERNEL(split, .run = run_moves);
BOWLINE_KERNEL(broadcast_to, .run = run_moves);
BOWLINE_KERNEL(expand, .run = run_moves);
BOWLINE_KERNELS_OF_FLOATS(sum_to, .run = run_sum_to<T>);
BOWLINE_KERNELS_OF_FLOATS(reduce_sum, .run = run_reduce_sum<T>);
BOWLINE_KERNELS_OF_FLOATS(reduce_mean, .run = run_reduce_mean<T>);

}  // namespace bowline::detail::cpu::shape_kernels
