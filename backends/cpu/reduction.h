// Loops over the elements of each result of a reduction, and over the lines along an axis.
#pragma once

#include "rows.h"

namespace bowline::detail::cpu {

// The axes of a reduction (ReduceAttributes).
inline Axes named_axes_of(const Launch& l) {
  const auto* axes = l.attributes<ReduceAttributes>().axes();
  return named_axes({axes->data(), axes->size()}, l.in[0].shape->rank());
}

// Calls f(output, walk) for each result of a reduction. walk(g) calls g with the position of each
// element of x that belongs to the result, in row-major order.
template <class F>
void for_reductions(Threads& threads, const Shape& x, const Axes& reduced, F&& f) {
  const ElementGroups groups = groups_of(x, reduced);
  const auto length = static_cast<int64_t>(groups.length);
  const int64_t n = row_length(groups.gone);
  const int64_t step = row_step(groups.gone, 0);
  parallel_rows(threads, static_cast<int64_t>(groups.outputs), length, [&](int64_t output) {
    const int64_t base = groups.begin(static_cast<uint64_t>(output));
    f(output, [&](auto&& g) {
      for (int64_t i = 0; i < length; i += n) {
        const int64_t at = base + groups.element(static_cast<uint64_t>(i));
        for (int64_t k = 0; k < n; ++k) {
          g(at + k * step);
        }
      }
    });
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
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, lines.n));
  threads.parallel_for(static_cast<size_t>((lines.count + grain - 1) / grain),
                       [&](size_t task, size_t thread) {
                         const int64_t begin = static_cast<int64_t>(task) * grain;
                         for (int64_t i = begin; i < std::min(begin + grain, lines.count); ++i) {
                           f(i, i / lines.step * lines.n * lines.step + i % lines.step, thread);
                         }
                       });
}

}  // namespace bowline::detail::cpu
