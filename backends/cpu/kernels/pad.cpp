//! ops(any) Pad Tile
//! ops(f32, f16, bf16) PadGrad
// Pads with elements of the tensor or with a constant. Tile pads with wrap.
#include <algorithm>
#include <cstring>

#include "core/element_types.h"
#include "core/padding.h"
#include "kernel.h"

namespace bowline::detail::cpu::pad_kernels {
namespace {

// Handles the last axis as rows: copies the inner part and looks up the pads.
template <class T>
void pad_row(const PaddedAxis& axis, PadMode mode, const T* x, T* y, T value) {
  const auto around = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = taken(axis, mode, i);
      y[i] = from < 0 ? value : x[from];
    }
  };
  around(0, axis.before);
  std::copy_n(x, axis.part, y + axis.before);
  around(axis.before + axis.part, axis.whole);
}

void pad(const Launch& l, const Padding& p, PadMode mode, float value) {
  if (l.out[0].elements() == 0) {
    return;
  }
  // A scalar is a row of one element.
  const int last = std::max(p.rank - 1, 0);
  const PaddedAxis row_axis = p.axes[static_cast<size_t>(last)];
  const auto strides = p.strides();
  with_bits(size_of(l.record.type), [&]<class T>() {
    const T fill = static_cast<T>(stored_bits(l.record.type, value));
    const T* const x = l.in[0].as<const T>();
    T* const y = l.out[0].as<T>();
    parallel_rows(l.threads, l.out[0].elements() / row_axis.whole, row_axis.whole,
                  [&](int64_t row) {
                    int64_t rest = row;
                    int64_t from = row_axis.crop;
                    bool there = true;
                    for (int a = last - 1; a >= 0; --a) {
                      const PaddedAxis& axis = p.axes[static_cast<size_t>(a)];
                      const int64_t i = taken(axis, mode, rest % axis.whole);
                      there = there && i >= 0;
                      from += (axis.crop + i) * strides[static_cast<size_t>(a)];
                      rest /= axis.whole;
                    }
                    T* const to = y + row * row_axis.whole;
                    if (there) {
                      pad_row(row_axis, mode, x + from, to, fill);
                    } else {
                      std::fill_n(to, row_axis.whole, fill);
                    }
                  });
  });
}

void run_pad(const Launch& l) {
  const auto& t = l.attributes<PadAttributes>();
  pad(l, padding_of(*l.in[0].shape, *t.begin(), *t.end()), t.mode(), t.value());
}

void run_tile(const Launch& l) {
  pad(l, padding_of(*l.in[0].shape, *l.out[0].shape), PadMode::wrap, 0);
}

template <class T>
void run_pad_grad(const Launch& l) {
  const auto& t = l.attributes<PadAttributes>();
  const PadMode mode = t.mode();
  const Padding p = padding_of(*l.out[0].shape, *t.begin(), *t.end());
  const T* const dy = l.in[0].as<const T>();
  T* const dx = l.out[0].as<T>();
  parallel_rows(l.threads, l.out[0].elements(), 4, [&](int64_t i) {
    std::array<Takers, kMaxRank> takers;
    int64_t terms = 1;
    int64_t rest = i;
    for (int a = p.rank - 1; a >= 0; --a) {
      const PaddedAxis& axis = p.axes[static_cast<size_t>(a)];
      takers[static_cast<size_t>(a)] = takers_of(axis, mode, rest % axis.source);
      terms *= takers[static_cast<size_t>(a)].count;
      rest /= axis.source;
    }
    double sum = 0;
    for (int64_t k = 0; k < terms; ++k) {
      int64_t left = k;
      int64_t at = 0;
      int64_t stride = 1;
      for (int a = p.rank - 1; a >= 0; --a) {
        const Takers& of_axis = takers[static_cast<size_t>(a)];
        at += of_axis.at(left % of_axis.count) * stride;
        left /= of_axis.count;
        stride *= p.axes[static_cast<size_t>(a)].whole;
      }
      sum += static_cast<double>(to_f32(dy[at]));
    }
    dx[i] = from_f32<T>(static_cast<float>(sum));
  });
}

}  // namespace

BOWLINE_KERNEL(pad, .run = run_pad);
BOWLINE_KERNEL(tile, .run = run_tile);
BOWLINE_KERNELS_OF_FLOATS(pad_grad, .run = run_pad_grad<T>);

}  // namespace bowline::detail::cpu::pad_kernels
