//! ops(f32, f16, bf16) MaxPool MaxPoolGrad AveragePool AveragePoolGrad GlobalAveragePool
// Pools. Each task processes some planes of [N, C, spatial...].
#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/planes.h"
#include "core/windows.h"
#include "wide.h"

namespace bowline::detail::cpu::pool_kernels {
namespace {

// The elements of a window along an axis that are inside [low, high): k in [begin, end); the first
// is at `at`.
struct Span {
  int64_t begin, end, at;
};
Span span_of(const WindowAxis& a, int64_t o, int64_t low, int64_t high) {
  const int64_t start = o * a.stride - a.pad;
  const int64_t begin =
      start >= low ? 0 : std::min(a.window, (low - start + a.dilation - 1) / a.dilation);
  const int64_t end =
      start >= high ? 0 : std::min(a.window, (high - start + a.dilation - 1) / a.dilation);
  return {begin, std::max(begin, end), start + begin * a.dilation};
}
Span inside(const WindowAxis& a, int64_t o) { return span_of(a, o, 0, a.in); }

// Calls f(output, spans of its window).
template <class F>
void for_windows(const Windows& w, F&& f) {
  int64_t o = 0;
  for (int64_t z = 0; z < w.axis[0].out; ++z) {
    const Span sz = inside(w.axis[0], z);
    for (int64_t y = 0; y < w.axis[1].out; ++y) {
      const Span sy = inside(w.axis[1], y);
      for (int64_t x = 0; x < w.axis[2].out; ++x, ++o) {
        f(o, std::array<Span, kMostSpatial>{sz, sy, inside(w.axis[2], x)});
      }
    }
  }
}

// Calls f(element) for the elements of a window, in row-major order.
template <class F>
void for_elements(const Windows& w, const std::array<Span, kMostSpatial>& s, F&& f) {
  int64_t z = s[0].at;
  for (int64_t kz = s[0].begin; kz < s[0].end; ++kz, z += w.axis[0].dilation) {
    int64_t y = s[1].at;
    for (int64_t ky = s[1].begin; ky < s[1].end; ++ky, y += w.axis[1].dilation) {
      int64_t i = (z * w.axis[1].in + y) * w.axis[2].in + s[2].at;
      for (int64_t kx = s[2].begin; kx < s[2].end; ++kx, i += w.axis[2].dilation) {
        f(i);
      }
    }
  }
}

template <class Table>
Windows windows(const Launch& l, const Shape& x, const Shape& y) {
  const auto& t = l.attributes<Table>();
  return windows_of(t, x, pool_window(t), y);
}

// The first of the largest elements of a window; NaN counts as the largest value. -1 if the window
// is empty.
int64_t largest(const Windows& w, const std::array<Span, kMostSpatial>& s, const float* x) {
  int64_t best = -1;
  for_elements(w, s, [&](int64_t i) {
    if (best < 0 || x[i] > x[best] || (std::isnan(x[i]) && !std::isnan(x[best]))) {
      best = i;
    }
  });
  return best;
}

// True if whole rows of the last axis are pooled, as with channels-last layout.
bool pools_rows(const Windows& w) {
  const WindowAxis& a = w.axis[2];
  return a.window == 1 && a.stride == 1 && a.pad == 0 && a.in == a.out;
}

// Calls f(plane, row of y, window) for whole rows of y. Along the last axis, the window has one
// element, at the start of the row.
template <class F>
void for_rows_of_windows(Threads& threads, const Windows& w, int64_t planes, F&& f) {
  const WindowAxis &az = w.axis[0], &ay = w.axis[1];  // clang 14 cannot capture structured bindings
  const int64_t work = ay.out * w.axis[2].out * w.window();
  parallel_rows(threads, planes * az.out, work, [&](int64_t i) {
    const Span z = inside(az, i % az.out);
    for (int64_t y = 0; y < ay.out; ++y) {
      f(i / az.out, i % az.out * ay.out + y,
        std::array<Span, kMostSpatial>{z, inside(ay, y), Span{0, 1, 0}});
    }
  });
}

// Calls take(rows, first, last) for groups of rows of x in a window. `first` and `last` mark the
// first and the last group.
template <class Take>
void in_groups(const Windows& w, const std::array<Span, kMostSpatial>& spans, const float* x,
               Take&& take) {
  std::array<const float*, 16> rows;
  size_t held = 0;
  bool first = true;
  for_elements(w, spans, [&](int64_t at) {
    if (held == rows.size()) {
      take(std::span<const float* const>(rows), first, false);
      first = false;
      held = 0;
    }
    rows[held++] = x + at;
  });
  take(std::span<const float* const>(rows).first(held), first, true);
}

void max_rows(const Launch& l, const Windows& w) {
  const auto n = static_cast<size_t>(w.axis[2].out);
  for_rows_of_windows(
      l.threads, w, l.out[0].shape->elements(0, 2),
      [&](int64_t plane, int64_t row, const auto& spans) {
        float* const to = l.out[0].f32() + plane * w.outputs() + row * w.axis[2].out;
        in_groups(w, spans, l.in[0].f32() + plane * w.inputs(),
                  [&](auto rows, bool first, bool) { largest_of_rows(rows, n, first, to); });
      });
}

void run_max_pool(const Launch& l) {
  const Windows w = windows<PoolAttributes>(l, *l.in[0].shape, *l.out[0].shape);
  if (pools_rows(w)) {
    return max_rows(l, w);
  }
  const float* x = l.in[0].f32();
  float* y = l.out[0].f32();
  parallel_rows(
      l.threads, l.out[0].shape->elements(0, 2), w.outputs() * w.window(), [&](int64_t p) {
        const float* from = x + p * w.inputs();
        for_windows(w, [&](int64_t o, const auto& spans) {
          const int64_t i = largest(w, spans, from);
          y[p * w.outputs() + o] = i < 0 ? -std::numeric_limits<float>::infinity() : from[i];
        });
      });
}

void run_max_pool_grad(const Launch& l) {
  const Windows w = windows<PoolAttributes>(l, *l.in[0].shape, *l.in[1].shape);
  const float *x = l.in[0].f32(), *dy = l.in[2].f32();
  float* dx = l.out[0].f32();
  parallel_rows(l.threads, l.out[0].shape->elements(0, 2), w.outputs() * w.window(),
                [&](int64_t p) {
                  float* to = dx + p * w.inputs();
                  std::fill_n(to, w.inputs(), 0.0f);
                  for_windows(w, [&](int64_t o, const auto& spans) {
                    const int64_t i = largest(w, spans, x + p * w.inputs());
                    if (i >= 0) {
                      to[i] += dy[p * w.outputs() + o];
                    }
                  });
                });
}

// The divisor of the average of window o. `spans` are its elements inside the input.
float count_of(const Windows& w, int64_t o, const std::array<Span, kMostSpatial>& spans,
               bool pads) {
  const int64_t at[] = {o / (w.axis[1].out * w.axis[2].out), o / w.axis[2].out % w.axis[1].out,
                        o % w.axis[2].out};
  int64_t count = 1;
  for (size_t a = 0; a < kMostSpatial; ++a) {
    const WindowAxis& axis = w.axis[a];
    const Span s = pads ? span_of(axis, at[a], -axis.pad, axis.in + axis.pad_end) : spans[a];
    count *= s.end - s.begin;
  }
  return static_cast<float>(count);
}

void average_rows(const Launch& l, const Windows& w, bool pads) {
  const int64_t n = w.axis[2].out;
  for_rows_of_windows(l.threads, w, l.out[0].shape->elements(0, 2),
                      [&](int64_t plane, int64_t row, const auto& spans) {
                        float* const to = l.out[0].f32() + plane * w.outputs() + row * n;
                        const float count = std::max(count_of(w, row * n, spans, pads), 1.0f);
                        in_groups(w, spans, l.in[0].f32() + plane * w.inputs(),
                                  [&](auto rows, bool first, bool last) {
                                    mean_of_rows(rows, static_cast<size_t>(n), first,
                                                 last ? count : 1.0f, to);
                                  });
                      });
}

void run_average_pool(const Launch& l) {
  const Windows w = windows<PoolAttributes>(l, *l.in[0].shape, *l.out[0].shape);
  const bool pads = l.attributes<PoolAttributes>().count_pads();
  if (pools_rows(w)) {
    return average_rows(l, w, pads);
  }
  const float* x = l.in[0].f32();
  float* y = l.out[0].f32();
  parallel_rows(l.threads, l.out[0].shape->elements(0, 2), w.outputs() * w.window(),
                [&](int64_t p) {
                  const float* from = x + p * w.inputs();
                  for_windows(w, [&](int64_t o, const auto& spans) {
                    float sum = 0;
                    for_elements(w, spans, [&](int64_t i) { sum += from[i]; });
                    y[p * w.outputs() + o] = sum / std::max(count_of(w, o, spans, pads), 1.0f);
                  });
                });
}

void run_average_pool_grad(const Launch& l) {
  const Windows w = windows<AveragePoolGradAttributes>(l, *l.out[0].shape, *l.in[0].shape);
  const bool pads = l.attributes<AveragePoolGradAttributes>().count_pads();
  const float* dy = l.in[0].f32();
  float* dx = l.out[0].f32();
  parallel_rows(
      l.threads, l.out[0].shape->elements(0, 2), w.outputs() * w.window(), [&](int64_t p) {
        float* to = dx + p * w.inputs();
        std::fill_n(to, w.inputs(), 0.0f);
        for_windows(w, [&](int64_t o, const auto& spans) {
          const float part = dy[p * w.outputs() + o] / std::max(count_of(w, o, spans, pads), 1.0f);
          for_elements(w, spans, [&](int64_t i) { to[i] += part; });
        });
      });
}

void run_global_average_pool(const Launch& l) {
  const Shape& x = *l.in[0].shape;
  const int64_t plane = x.elements(2, x.rank());
  parallel_rows(l.threads, x.elements(0, 2), plane, [&](int64_t p) {
    l.out[0].f32()[p] =
        sum_of(static_cast<size_t>(plane), l.in[0].f32() + p * plane) / static_cast<float>(plane);
  });
}

}  // namespace

BOWLINE_CPU_WIDE_KERNELS(max_pool, run_max_pool, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(max_pool_grad, run_max_pool_grad, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(average_pool, run_average_pool, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(average_pool_grad, run_average_pool_grad, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(global_average_pool, run_global_average_pool, no_workspace);

}  // namespace bowline::detail::cpu::pool_kernels
