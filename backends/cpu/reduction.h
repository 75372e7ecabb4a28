// Loops over the elements of each result of a reduction, and over the lines along an axis.
#pragma once

#include <algorithm>
#include <numeric>

#include "core/strides.h"
#include "kernel.h"

namespace bowline::detail::cpu {

// The axes of a reduction (ReduceAttributes).
inline Axes named_axes_of(const Launch& l) {
  const auto* axes = l.attributes<ReduceAttributes>().axes();
  return named_axes({axes->data(), axes->size()}, l.in[0].shape->rank());
}

// The offsets of the elements along some axes of a tensor, in row-major order.
class Walk {
 public:
  Walk(const Shape& shape, const Axes& axes, bool which) {
    const Strides strides = strides_of(shape);
    for (int a = 0; a < shape.rank(); ++a) {
      const auto i = static_cast<size_t>(a);
      if (axes[i] == which) {
        dims_[static_cast<size_t>(rank_)] = shape[a];
        strides_[static_cast<size_t>(rank_++)] = strides[i];
        count_ *= shape[a];
      }
    }
  }
  int64_t count() const { return count_; }
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int a = rank_ - 1; a >= 0; --a) {
      at += i % dims_[static_cast<size_t>(a)] * strides_[static_cast<size_t>(a)];
      i /= dims_[static_cast<size_t>(a)];
    }
    return at;
  }
  // Calls f(offset) for every element, starting at `base`.
  template <class F>
  void each(int64_t base, F&& f) const {
    const int64_t inner = rank_ == 0 ? 1 : dims_[static_cast<size_t>(rank_ - 1)];
    const int64_t step = rank_ == 0 ? 0 : strides_[static_cast<size_t>(rank_ - 1)];
    for (int64_t i = 0; i < count_; i += inner) {
      const int64_t at = base + offset(i);
      for (int64_t k = 0; k < inner; ++k) {
        f(at + k * step);
      }
    }
  }

 private:
  int rank_ = 0;
  int64_t count_ = 1;
  std::array<int64_t, kMaxRank> dims_{};
  std::array<int64_t, kMaxRank> strides_{};
};

// Calls f(output, walk) for each result of a reduction. walk(g) calls g with the position of each
// element of x that belongs to the result, in row-major order.
template <class F>
void for_reductions(Threads& threads, const Shape& x, const Axes& reduced, F&& f) {
  const Walk kept(x, reduced, false);
  const Walk gone(x, reduced, true);
  parallel_blocks(threads, kept.count(),
                  std::max<int64_t>(1, 16384 / std::max<int64_t>(1, gone.count())),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t o = begin; o < end; ++o) {
                      const int64_t base = kept.offset(o);
                      f(o, [&](auto&& g) { gone.each(base, g); });
                    }
                  });
}

// The lines of a tensor along an axis: `count` lines of n elements that are `step` apart.
struct Lines {
  Lines(const Shape& shape, int axis)
      : n(shape[axis]),
        step(shape.elements(axis + 1, shape.rank())),
        count(shape.elements(0, axis) * step) {}
  int64_t n;
  int64_t step;
  int64_t count;
};

// Calls f(line, begin, thread), where `begin` is the position of the first element of the line.
template <class F>
void for_lines(Threads& threads, const Lines& lines, F&& f) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, lines.n));
  threads.parallel_for(static_cast<size_t>((lines.count + grain - 1) / grain),
                       [&](size_t task, size_t thread) {
                         const int64_t begin = static_cast<int64_t>(task) * grain;
                         for (int64_t i = begin; i < std::min(begin + grain, lines.count); ++i) {
                           f(i, i / lines.step * lines.n * lines.step + i % lines.step, thread);
                         }
                       });
}

}  // namespace bowline::detail::cpu
