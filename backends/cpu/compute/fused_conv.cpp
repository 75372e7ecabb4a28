// See fused_conv.h.
#include "compute/fused_conv.h"

#include <algorithm>
#include <utility>

#include "compute/convolution.h"
#include "compute/targets.h"
#include "core/checked.h"
#include "hwy/cache_control.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/fused_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_FUSED_CONV_ONCE
#define BOWLINE_CPU_FUSED_CONV_ONCE
namespace bowline::detail::cpu {
namespace {

constexpr size_t kPanel = kPackedOutputs;

constexpr size_t to_size(int64_t n) { return static_cast<size_t>(n); }

// What becomes of a sum, by channel: sum * scale + shift, + the addend, clipped.
struct Finish {
  const float* scale;
  const float* shift;
  float min, max;
};

// Elements [begin, end) of a window that lie in the input, for output o.
struct Taps {
  Taps(const WindowAxis& a, size_t o) {
    const int64_t first = static_cast<int64_t>(o) * a.stride - a.pad;
    // A division takes longer than all the rest.
    const auto steps = [&](int64_t n) { return a.dilation == 1 ? n : n / a.dilation; };
    const int64_t below = first >= 0 ? 0 : steps(-first + a.dilation - 1);
    const int64_t above = first >= a.in ? 0 : steps(a.in - 1 - first) + 1;
    begin = to_size(std::min(below, a.window));
    end = to_size(std::clamp(above, std::min(below, a.window), a.window));
    from = first;
  }
  size_t begin, end;
  int64_t from;  // where element 0 of the window lies
};

// Rows of a against panels of a packed weight.
struct PanelProduct {
  const float* a;
  size_t a_row;
  const float* weight;
  size_t depth;
  const float* addend;  // (optional) as y
  float* y;
  size_t channels;  // of y, and elements of a row
  Finish finish;
};

// A channel each: a row of outputs of one sample.
struct SlideJob {
  const WindowAxis& rows;
  const WindowAxis& columns;
  size_t channels;
  const float* x;  // of the sample
  const float* weight;
  const float* addend;  // (optional) as y
  float* y;             // of the sample
  Finish finish;
  bool meets_zeros;  // a weight is not finite, so that the zeros around x count
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

constexpr size_t kLanes = hn::MaxLanes(FloatTag());
// Sums held in registers: 12 rows of two vectors where there are 32 registers, else 6 rows.
constexpr size_t kMostVectors = 2;
constexpr size_t kTileChannels = kMostVectors * kLanes;
static_assert(kPanel % kTileChannels == 0);
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr size_t kMostRows = 12;
#else
constexpr size_t kMostRows = 6;
#endif
// So many elements of the depth ahead the weight is fetched: the processor itself stops at the end of a page.
constexpr size_t kAhead = 16;

// Neighbouring outputs of a row that share the loads of a weight, where a channel sees itself alone.
constexpr size_t kSlidOutputs = 8;

// Finish of the channels of a vector, in registers.
struct FinishVector {
  FinishVector(const Finish& f, size_t channel)
      : scale(hn::LoadU(FloatTag(), f.scale + channel)),
        shift(hn::LoadU(FloatTag(), f.shift + channel)),
        low(hn::Set(FloatTag(), f.min)),
        high(hn::Set(FloatTag(), f.max)) {}

  // Element `at` of y; the addend is null or as y.
  template <class Part>
  HWY_INLINE void store(FloatVector sum, const float* addend, float* y, size_t at,
                        Part part) const {
    FloatVector v = hn::MulAdd(sum, scale, shift);
    if (addend != nullptr) {
      v = hn::Add(v, part.load(addend + at));
    }
    v = hn::IfThenElse(hn::Lt(v, low), low, v);
    part.store(hn::IfThenElse(hn::Gt(v, high), high, v), y + at);
  }

  FloatVector scale, shift, low, high;
};

// Rows from `row` on against the channels from `first` on, which lie in one panel.
template <size_t kRows, size_t kVectors>
HWY_NOINLINE void panel_tile(const PanelProduct& p, size_t row, size_t first) {
  const FloatTag d;
  FloatVector sum[kRows][kVectors];
  HWY_UNROLL(12)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::Zero(d);
    }
  }
  // A pointer for every three rows reaches them with address forms that need no arithmetic.
  constexpr size_t kThirds = (kRows + 2) / 3;
  const float* a[kThirds];
  for (size_t t = 0; t < kThirds; ++t) {
    a[t] = p.a + (row + 3 * t) * p.a_row;
  }
  const size_t a_row = p.a_row;
  const float* HWY_RESTRICT b = p.weight + first / kPanel * p.depth * kPanel + first % kPanel;
  for (size_t k = 0; k < p.depth; ++k) {
    FloatVector bk[kVectors];
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) {
      bk[v] = hn::LoadU(d, b + v * kLanes);
      hwy::Prefetch(b + kAhead * kPanel + v * kLanes);
    }
    HWY_UNROLL(12)
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVector ar = hn::Set(d, a[r / 3][r % 3 * a_row]);
      HWY_UNROLL(2)
      for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(ar, bk[v], sum[r][v]);
      }
    }
    HWY_UNROLL(4)
    for (size_t t = 0; t < kThirds; ++t) {
      ++a[t];
    }
    b += kPanel;
  }
  HWY_UNROLL(2)
  for (size_t v = 0; v < kVectors; ++v) {
    const size_t channel = first + v * kLanes;
    const FinishVector finish_vector(p.finish, channel);
    const float* const addend = p.addend;
    float* const y = p.y;
    const auto finish = [&](auto part) HWY_ATTR {
      HWY_UNROLL(12)
      for (size_t r = 0; r < kRows; ++r) {
        finish_vector.store(sum[r][v], addend, y, (row + r) * p.channels + channel, part);
      }
    };
    if (channel + kLanes <= p.channels) {
      finish(WholeVector{});
    } else if (channel < p.channels) {
      finish(PartialVector(p.channels - channel));
    }
  }
}

using PanelTile = void (*)(const PanelProduct&, size_t row, size_t first);

template <size_t kVectors, size_t... kRows>
PanelTile panel_tile_for(size_t rows, std::index_sequence<kRows...>) {
  static constexpr PanelTile kTiles[] = {panel_tile<kRows + 1, kVectors>...};
  return kTiles[rows - 1];
}

// Rows [begin, end) against channels [first, last), a tile at a time, all of about the same height.
void multiply_panels(const PanelProduct& p, size_t begin, size_t end, size_t first, size_t last) {
  constexpr std::make_index_sequence<kMostRows> kHeights;
  const size_t tiles = (end - begin + kMostRows - 1) / kMostRows;
  for (size_t channel = first; channel < std::min(last, p.channels); channel += kTileChannels) {
    const bool wide = std::min(last, p.channels) - channel > kLanes;
    for (size_t t = 0; t < tiles; ++t) {
      const size_t from = begin + (end - begin) * t / tiles;
      const size_t rows = begin + (end - begin) * (t + 1) / tiles - from;
      const PanelTile tile =
          wide ? panel_tile_for<kMostVectors>(rows, kHeights) : panel_tile_for<1>(rows, kHeights);
      tile(p, from, channel);
    }
  }
}

// Where the first element of a window that lies at `y` and `x` would lie in x.
HWY_INLINE const float* window_of(const SlideJob& j, const Taps& y, const Taps& x) {
  return j.x + (y.from * j.columns.in + x.from) * static_cast<int64_t>(j.channels);
}

// Outputs [begin, end) of a row, whose windows of kSide x kSide lie in x, for the channels of `part` from `channel`.
template <size_t kSide, class Part>
HWY_INLINE void slide_inside(const SlideJob& j, size_t o_row, const Taps& y, size_t begin,
                             size_t end, size_t channel, Part part) {
  const FloatTag d;
  const size_t channels = j.channels;
  const size_t step = to_size(j.columns.stride) * channels;
  const size_t dx = to_size(j.columns.dilation) * channels;
  const size_t dy = to_size(j.rows.dilation * j.columns.in) * channels;
  const float* from[kSide];
  FloatVector w[kSide][kSide];
  const float* weight = j.weight + channel / kPanel * (kSide * kSide * kPanel) + channel % kPanel;
  HWY_UNROLL(3)
  for (size_t ky = 0; ky < kSide; ++ky) {
    from[ky] = window_of(j, y, Taps(j.columns, begin)) + ky * dy + channel;
    HWY_UNROLL(3)
    for (size_t kx = 0; kx < kSide; ++kx) {
      w[ky][kx] = hn::LoadU(d, weight + (ky * kSide + kx) * kPanel);
    }
  }
  const FinishVector finish(j.finish, channel);
  const float* const addend = j.addend;
  float* const out = j.y;
  size_t at = (o_row * to_size(j.columns.out) + begin) * channels + channel;
  for (size_t o = begin; o < end; ++o, at += channels) {
    FloatVector sum = hn::Zero(d);
    HWY_UNROLL(3)
    for (size_t ky = 0; ky < kSide; ++ky) {
      HWY_UNROLL(3)
      for (size_t kx = 0; kx < kSide; ++kx) {
        sum = hn::MulAdd(part.load(from[ky] + kx * dx), w[ky][kx], sum);
      }
      from[ky] += step;
    }
    finish.store(sum, addend, out, at, part);
  }
}

// kOutputs neighbours of a row from `o` on, whose windows lie in x from column to column, for the channels of `part`.
template <size_t kOutputs, class Part>
HWY_INLINE void slide_some(const SlideJob& j, size_t o_row, const Taps& y, size_t o, size_t channel,
                           Part part) {
  const FloatTag d;
  const size_t channels = j.channels, width = to_size(j.columns.window);
  const size_t step = to_size(j.columns.stride) * channels;
  const size_t dx = to_size(j.columns.dilation) * channels;
  const size_t dy = to_size(j.rows.dilation * j.columns.in) * channels;
  const float* weight =
      j.weight + channel / kPanel * (to_size(j.rows.window) * width * kPanel) + channel % kPanel;
  const int64_t first =
      (y.from * j.columns.in + Taps(j.columns, o).from) * static_cast<int64_t>(channels) +
      static_cast<int64_t>(channel);
  FloatVector sum[kOutputs];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kOutputs; ++r) {
    sum[r] = hn::Zero(d);
  }
  for (size_t ky = y.begin; ky < y.end; ++ky) {
    const float* tap = j.x + to_size(first + static_cast<int64_t>(ky * dy));
    for (size_t kx = 0; kx < width; ++kx, tap += dx) {
      const FloatVector w = hn::LoadU(d, weight + (ky * width + kx) * kPanel);
      HWY_UNROLL(8)
      for (size_t r = 0; r < kOutputs; ++r) {
        sum[r] = hn::MulAdd(part.load(tap + r * step), w, sum[r]);
      }
    }
  }
  const FinishVector finish(j.finish, channel);
  size_t at = (o_row * to_size(j.columns.out) + o) * channels + channel;
  HWY_UNROLL(8)
  for (size_t r = 0; r < kOutputs; ++r, at += channels) {
    finish.store(sum[r], j.addend, j.y, at, part);
  }
}

// f(channel, part) for the vectors of channels [first, last).
template <class F>
HWY_INLINE void for_channels(const SlideJob& j, size_t first, size_t last, F&& f) {
  for (size_t channel = first; channel < std::min(last, j.channels); channel += kLanes) {
    if (channel + kLanes <= j.channels) {
      f(channel, WholeVector{});
    } else {
      f(channel, PartialVector(j.channels - channel));
    }
  }
}

// One output, of which a part of the window may lie outside of x.
void slide_once(const SlideJob& j, size_t o_row, const Taps& y, size_t o, size_t first,
                size_t last) {
  const FloatTag d;
  const Taps x(j.columns, o);
  const size_t width = to_size(j.columns.window);
  const size_t window = to_size(j.rows.window) * width;
  const auto dx = j.columns.dilation * static_cast<int64_t>(j.channels);
  const int64_t dy = j.rows.dilation * j.columns.in * static_cast<int64_t>(j.channels);
  const int64_t offset = (y.from * j.columns.in + x.from) * static_cast<int64_t>(j.channels);
  const size_t at = (o_row * to_size(j.columns.out) + o) * j.channels;
  const float* const from = j.x;
  for_channels(j, first, last, [&](size_t channel, auto part) HWY_ATTR {
    const float* weight = j.weight + channel / kPanel * (window * kPanel) + channel % kPanel;
    FloatVector sum = hn::Zero(d);
    for (size_t ky = y.begin; ky < y.end; ++ky) {
      const int64_t row = offset + static_cast<int64_t>(ky) * dy + static_cast<int64_t>(channel);
      for (size_t kx = x.begin; kx < x.end; ++kx) {
        const float* const tap = from + to_size(row + static_cast<int64_t>(kx) * dx);
        sum = hn::MulAdd(part.load(tap), hn::LoadU(d, weight + (ky * width + kx) * kPanel), sum);
      }
    }
    for (size_t k = 0; j.meets_zeros && k < window; ++k) {
      const size_t ky = k / width, kx = k % width;
      if (ky < y.begin || ky >= y.end || kx < x.begin || kx >= x.end) {
        sum = hn::MulAdd(hn::Zero(d), hn::LoadU(d, weight + k * kPanel), sum);
      }
    }
    FinishVector(j.finish, channel).store(sum, j.addend, j.y, at + channel, part);
  });
}

// Row o_row of outputs, channels [first, last).
void slide_row(const SlideJob& j, size_t o_row, size_t first, size_t last) {
  const WindowAxis& c = j.columns;
  const size_t outputs = to_size(c.out);
  const Taps y(j.rows, o_row);
  // The outputs whose windows lie in x from column to column.
  const size_t begin =
      j.meets_zeros ? outputs : std::min(to_size((c.pad + c.stride - 1) / c.stride), outputs);
  const int64_t room = c.in + c.pad - c.reach();
  const size_t end = room < 0 ? begin : std::clamp(to_size(room / c.stride) + 1, begin, outputs);
  for (size_t o = 0; o < begin; ++o) {
    slide_once(j, o_row, y, o, first, last);
  }
  if (begin < end && j.rows.window == 3 && c.window == 3 && y.begin == 0 && y.end == 3) {
    for_channels(j, first, last, [&](size_t channel, auto part) HWY_ATTR {
      slide_inside<3>(j, o_row, y, begin, end, channel, part);
    });
  } else if (begin < end) {
    for_channels(j, first, last, [&](size_t channel, auto part) HWY_ATTR {
      size_t o = begin;
      for (; o + kSlidOutputs <= end; o += kSlidOutputs) {
        slide_some<kSlidOutputs>(j, o_row, y, o, channel, part);
      }
      for (; o < end; ++o) {
        slide_some<1>(j, o_row, y, o, channel, part);
      }
    });
  }
  for (size_t o = end; o < outputs; ++o) {
    slide_once(j, o_row, y, o, first, last);
  }
}

// The windows of outputs [begin, end), a row each.
void gather_windows(const Convolution& c, const float* x, size_t begin, size_t end, float* to) {
  const auto& [az, ay, ax] = c.windows.axis;
  const auto outputs = to_size(c.windows.outputs()), columns = to_size(ax.out);
  const size_t channels = to_size(c.inputs), row = to_size(ax.window) * channels;
  // Neighbours in a window that are neighbours in x too are copied together.
  const size_t run = ax.dilation == 1 ? to_size(ax.window) : 1;
  size_t sample_of = begin / outputs, o_row = begin % outputs / columns, column = begin % columns;
  for (size_t o = begin; o < end; ++o, ++column) {
    if (column == columns) {
      column = 0;
      o_row = o_row + 1 == to_size(ay.out) ? 0 : o_row + 1;
      sample_of += o_row == 0 ? 1 : 0;
    }
    const float* sample = x + sample_of * to_size(c.windows.inputs()) * channels;
    const Taps y(ay, o_row), taps(ax, column);
    for (size_t ky = 0; ky < to_size(ay.window); ++ky, to += row) {
      if (ky < y.begin || ky >= y.end) {
        std::fill_n(to, row, 0.0f);
        continue;
      }
      const int64_t iy = y.from + static_cast<int64_t>(ky) * ay.dilation;
      std::fill_n(to, taps.begin * channels, 0.0f);
      std::fill(to + taps.end * channels, to + row, 0.0f);
      for (size_t kx = taps.begin; kx < taps.end; kx += run) {
        const int64_t ix = taps.from + static_cast<int64_t>(kx) * ax.dilation;
        const float* const from = sample + to_size(iy * ax.in + ix) * channels;
        float* const piece = to + kx * channels;
        for_vectors(std::min(run, taps.end - kx) * channels, [&](size_t i, auto part) HWY_ATTR {
          part.store(part.load(from + i), piece + i);
        });
      }
    }
  }
}

// What BatchNorm, or a bias, does with a channel, as one product and one sum.
void fold_statistics(const FusedConvolution& f, size_t channels, float* scale, float* shift) {
  const FloatTag d;
  if (f.scale == nullptr) {
    std::fill_n(scale, channels, 1.0f);
    std::copy_n(f.bias, channels, shift);
    return;
  }
  for_vectors(channels, [&](size_t i, auto part) HWY_ATTR {
    const FloatVector root = hn::Sqrt(hn::Add(part.load(f.variance + i), hn::Set(d, f.eps)));
    const FloatVector s = hn::Div(part.load(f.scale + i), root);
    part.store(s, scale + i);
    part.store(hn::NegMulAdd(part.load(f.mean + i), s, part.load(f.bias + i)), shift + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::detail::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

HWY_EXPORT(multiply_panels);
HWY_EXPORT(slide_row);
HWY_EXPORT(gather_windows);
HWY_EXPORT(fold_statistics);

// Products below which a second thread costs more than it saves; those of a task that is one of several of its thread, so that all
// threads end together. A window that slides takes about three times as long.
constexpr size_t kLeastProducts = size_t{1} << 18;
constexpr size_t kProductsOfTask = size_t{1} << 19;
constexpr size_t kMostTasksPerThread = 4;
constexpr size_t kSlideFactor = 3;

size_t tasks_of(size_t products, size_t threads) {
  return threads == 1 || products < kLeastProducts
             ? 1
             : threads *
                   std::clamp<size_t>(products / threads / kProductsOfTask, 1, kMostTasksPerThread);
}
// Rows that meet a panel while it is in a cache, and floats of them where they are gathered.
constexpr size_t kLeastRows = 24;
constexpr size_t kGatheredFloats = size_t{1} << 15;

size_t padded_channels(const Convolution& c) {
  return to_size(packed_blocks(c.groups * c.outputs) * kPackedOutputs);
}

// Whether each window lies in x as one run: a single element, or those along the one axis that there is.
bool lies_in_rows(const Convolution& c) {
  const auto each = [](const WindowAxis& a) {
    return a.window == 1 && a.stride == 1 && a.pad == 0 && a.in == a.out;
  };
  const auto one = [](const WindowAxis& a) {
    return a.in == 1 && a.window == 1 && a.pad == 0 && a.out == 1;
  };
  const auto run = [](const WindowAxis& a) {
    return a.dilation == 1 && a.pad == 0 && (a.out - 1) * a.stride + a.window <= a.in;
  };
  const auto& [az, ay, ax] = c.windows.axis;
  return std::ranges::all_of(c.windows.axis, each) ||
         (c.batch == 1 && one(az) && ((one(ay) && run(ax)) || (run(ay) && one(ax))));
}
// From one window to the next, where they lie in x.
size_t row_step_of(const Convolution& c) {
  const auto& [az, ay, ax] = c.windows.axis;
  return to_size(c.inputs * (ax.in == 1 ? ay.stride : ax.stride));
}

size_t depth_of(const Convolution& c) { return to_size(c.inputs * c.windows.window()); }

// Rows that meet all panels while they are in a cache: of few, the panels are read too often.
size_t rows_at_once(size_t row, size_t most) {
  const size_t rows = kGatheredFloats / std::max<size_t>(row, 1);
  return std::clamp<size_t>(rows / kLeastRows * kLeastRows, kLeastRows, most);
}
size_t gathered_rows(const Convolution& c) { return rows_at_once(depth_of(c), kLeastRows * 2); }

// A grid of tasks: parts of the rows times parts of the panels.
struct Grid {
  size_t rows, panels;  // of a task
  size_t row_tasks, panel_tasks;
};

Grid grid_of(size_t rows, size_t panels, size_t products, size_t threads) {
  const size_t wanted = tasks_of(products, threads);
  const size_t parts = std::clamp<size_t>(rows / kLeastRows, 1, wanted);
  Grid g;
  g.rows = std::max<size_t>((rows + parts - 1) / parts, 1);
  g.row_tasks = (rows + g.rows - 1) / g.rows;
  const size_t columns = std::clamp<size_t>(wanted / parts, 1, std::max<size_t>(panels, 1));
  g.panels = (panels + columns - 1) / columns;
  g.panel_tasks = g.panels == 0 ? 0 : (panels + g.panels - 1) / g.panels;
  return g;
}

void multiply(Threads& threads, const FusedConvolution& f, const Finish& finish, float* gathered) {
  const Convolution& c = f.shape;
  const size_t rows = to_size(c.batch * c.windows.outputs());
  const size_t depth = depth_of(c), channels = to_size(c.outputs);
  const size_t panels = padded_channels(c) / kPanel;
  const bool in_rows = lies_in_rows(c);
  const Grid g = grid_of(rows, panels, rows * depth * channels, threads.count());
  const size_t step = row_step_of(c);
  const PanelProduct whole{f.x,   in_rows ? step : depth, f.weight, depth, f.addend, f.y, channels,
                           finish};
  threads.parallel_for(g.row_tasks * g.panel_tasks, [&](size_t task, size_t thread) {
    const size_t begin = task % g.row_tasks * g.rows, end = std::min(begin + g.rows, rows);
    const size_t first = task / g.row_tasks * g.panels * kPanel;
    const size_t last = std::min(first + g.panels * kPanel, panels * kPanel);
    if (in_rows) {
      const size_t each = rows_at_once(step, std::max(rows, kLeastRows));
      for (size_t at = begin; at < end; at += each) {
        HWY_DYNAMIC_DISPATCH(multiply_panels)(whole, at, std::min(at + each, end), first, last);
      }
      return;
    }
    const size_t each = gathered_rows(c);
    float* const windows = gathered + thread * each * depth;
    for (size_t at = begin; at < end; at += each) {
      const size_t count = std::min(each, end - at);
      HWY_DYNAMIC_DISPATCH(gather_windows)(c, f.x, at, at + count, windows);
      PanelProduct part = whole;
      part.a = windows;
      part.y += at * channels;
      part.addend = f.addend == nullptr ? nullptr : f.addend + at * channels;
      HWY_DYNAMIC_DISPATCH(multiply_panels)(part, 0, count, first, last);
    }
  });
}

void slide(Threads& threads, const FusedConvolution& f, const Finish& finish) {
  const Convolution& c = f.shape;
  const auto& ay = c.windows.axis[1];
  const auto& ax = c.windows.axis[2];
  const size_t channels = to_size(c.groups), panels = padded_channels(c) / kPanel;
  const size_t x_sample = to_size(c.windows.inputs()) * channels;
  const size_t y_sample = to_size(c.windows.outputs()) * channels;
  const size_t rows = to_size(c.batch * ay.out);
  const size_t products = to_size(c.batch) * y_sample * to_size(c.windows.window());
  const bool meets_zeros =
      !all_finite({f.weight, padded_channels(c) * to_size(c.windows.window())});
  const size_t wanted = tasks_of(kSlideFactor * products, threads.count());
  const size_t row_tasks = std::clamp<size_t>(rows, 1, wanted);
  const size_t panel_tasks = std::clamp<size_t>(wanted / row_tasks, 1, std::max<size_t>(panels, 1));
  threads.parallel_for(rows == 0 ? 0 : row_tasks * panel_tasks, [&](size_t task, size_t) {
    const size_t at = task % row_tasks, of = task / row_tasks;
    const size_t first = panels * of / panel_tasks * kPanel;
    const size_t last = panels * (of + 1) / panel_tasks * kPanel;
    for (size_t r = rows * at / row_tasks; r < rows * (at + 1) / row_tasks; ++r) {
      const size_t sample = r / to_size(ay.out);
      const SlideJob job{ay,
                         ax,
                         channels,
                         f.x + sample * x_sample,
                         f.weight,
                         f.addend == nullptr ? nullptr : f.addend + sample * y_sample,
                         f.y + sample * y_sample,
                         finish,
                         meets_zeros};
      HWY_DYNAMIC_DISPATCH(slide_row)(job, r % to_size(ay.out), first, last);
    }
  });
}

}  // namespace

uint64_t fused_convolution_scratch_bytes(const Convolution& c, const Threads& threads) {
  const bool gathers = c.groups == 1 && !lies_in_rows(c);
  const size_t gathered = gathers ? threads.count() * gathered_rows(c) * depth_of(c) : 0;
  return round_up((2 * padded_channels(c) + gathered) * sizeof(float), 64);
}

void convolve_fused(Threads& threads, const FusedConvolution& f, void* scratch) {
  const Convolution& c = f.shape;
  const size_t channels = to_size(c.groups * c.outputs), padded = padded_channels(c);
  auto* const scale = static_cast<float*>(scratch);
  float* const shift = scale + padded;
  std::fill_n(scale + channels, padded - channels, 0.0f);
  std::fill_n(shift + channels, padded - channels, 0.0f);
  HWY_DYNAMIC_DISPATCH(fold_statistics)(f, channels, scale, shift);
  const Finish finish{scale, shift, f.min, f.max};
  if (c.groups == 1) {
    multiply(threads, f, finish, shift + padded);
  } else {
    slide(threads, f, finish);
  }
}

void pack_outputs(Threads& threads, size_t outputs, size_t inputs, size_t window, const float* x,
                  float* y) {
  const size_t panel = inputs * window * kPanel;
  threads.parallel_for((outputs + kPanel - 1) / kPanel, [&](size_t block, size_t) {
    float* to = y + block * panel;
    for (size_t k = 0; k < window; ++k) {
      for (size_t i = 0; i < inputs; ++i) {
        for (size_t m = block * kPanel; m < (block + 1) * kPanel; ++m) {
          *to++ = m < outputs ? x[(m * inputs + i) * window + k] : 0.0f;
        }
      }
    }
  });
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
