// See fused_conv.h.
#include "compute/fused_conv.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "compute/convolution.h"
#include "compute/targets.h"
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

// The last steps per channel: sum * scale + shift, + addend, clip.
struct Finish {
  const float* scale;
  const float* shift;
  float min, max;
};

// The elements [begin, end) of the window of output o that are inside the input.
struct Taps {
  Taps(const WindowAxis& a, size_t o) {
    const int64_t first = static_cast<int64_t>(o) * a.stride - a.pad;
    // The division would take longer than all other steps.
    const auto steps = [&](int64_t n) { return a.dilation == 1 ? n : n / a.dilation; };
    const int64_t below = first >= 0 ? 0 : steps(-first + a.dilation - 1);
    const int64_t above = first >= a.in ? 0 : steps(a.in - 1 - first) + 1;
    begin = to_size(std::min(below, a.window));
    end = to_size(std::clamp(above, std::min(below, a.window), a.window));
    from = first;
  }
  size_t begin, end;
  int64_t from;  // position of element 0 of the window
};

// Multiplies windows with panels of a packed weight. A window consists of `lines` times `pieces`
// contiguous runs.
struct PanelProduct {
  const float* a;
  const size_t* from;  // by row: where its window starts in a
  size_t lines, line_step;
  size_t pieces, piece_step;
  size_t run;
  const float* weight;
  size_t depth;         // elements per window
  const float* addend;  // (optional) like y
  float* y;
  size_t channels;  // of y; elements per row
  Finish finish;
};

// One channel per group: a row of outputs of one sample.
struct SlideJob {
  const WindowAxis& rows;
  const WindowAxis& columns;
  size_t channels;
  const float* x;  // of the sample
  const float* weight;
  const float* addend;  // (optional) like y
  float* y;             // of the sample
  Finish finish;
  bool meets_zeros;  // a weight is not finite, so the zeros around x must be multiplied
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

constexpr size_t kLanes = hn::MaxLanes(FloatTag());
// Sums in registers: 12 rows of two vectors with 32 registers, otherwise 6 rows.
constexpr size_t kMostVectors = 2;
constexpr size_t kTileChannels = kMostVectors * kLanes;
static_assert(kPanel % kTileChannels == 0);
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr size_t kMostRows = 12;
#else
constexpr size_t kMostRows = 6;
#endif
// The weight is prefetched by this number of depth elements, because hardware prefetchers stop at
// page boundaries.
constexpr size_t kAhead = 16;
constexpr size_t kLine = 16;  // floats per cache line

// Number of neighbouring outputs of a row that share a loaded weight, with one channel per group.
constexpr size_t kSlidOutputs = 8;

// Finish of the channels of a vector, in registers.
struct FinishVector {
  FinishVector(const Finish& f, size_t channel)
      : scale(hn::LoadU(FloatTag(), f.scale + channel)),
        shift(hn::LoadU(FloatTag(), f.shift + channel)),
        low(hn::Set(FloatTag(), f.min)),
        high(hn::Set(FloatTag(), f.max)) {}

  // Finishes element `at` of y. The addend is null or has the layout of y.
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

// Multiplies rows from `row` on with the channels from `first` on, which are in one panel.
template <size_t kRows, size_t kVectors>
HWY_NOINLINE void panel_tile(const PanelProduct& p, size_t row, size_t first) {
  const FloatTag d;
  FloatVector sum[kRows][kVectors];
  size_t from[kRows];
  HWY_UNROLL(12)
  for (size_t r = 0; r < kRows; ++r) {
    from[r] = p.from[row + r];
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::Zero(d);
    }
  }
  const float* HWY_RESTRICT b = p.weight + first / kPanel * p.depth * kPanel + first % kPanel;
  const size_t run = p.run;
  for (size_t line = 0; line < p.lines; ++line) {
    for (size_t piece = 0; piece < p.pieces; ++piece) {
      const float* HWY_RESTRICT a = p.a + line * p.line_step + piece * p.piece_step;
      for (const float* const end = a + run; a != end; ++a, b += kPanel) {
        FloatVector bk[kVectors];
        HWY_UNROLL(2)
        for (size_t v = 0; v < kVectors; ++v) {
          bk[v] = hn::LoadU(d, b + v * kLanes);
          if (v * kLanes % kLine == 0) {
            hwy::Prefetch(b + kAhead * kPanel + v * kLanes);
          }
        }
        HWY_UNROLL(12)
        for (size_t r = 0; r < kRows; ++r) {
          const FloatVector ar = hn::Set(d, a[from[r]]);
          HWY_UNROLL(2)
          for (size_t v = 0; v < kVectors; ++v) {
            sum[r][v] = hn::MulAdd(ar, bk[v], sum[r][v]);
          }
        }
      }
    }
  }
  HWY_UNROLL(2)
  for (size_t v = 0; v < kVectors; ++v) {
    const size_t channel = first + v * kLanes;
    const FinishVector finish(p.finish, channel);
    if (channel + kLanes <= p.channels) {
      HWY_UNROLL(12)
      for (size_t r = 0; r < kRows; ++r) {
        finish.store(sum[r][v], p.addend, p.y, (row + r) * p.channels + channel, WholeVector{});
      }
    } else if (channel < p.channels) {
      const PartialVector part(p.channels - channel);
      HWY_UNROLL(12)
      for (size_t r = 0; r < kRows; ++r) {
        finish.store(sum[r][v], p.addend, p.y, (row + r) * p.channels + channel, part);
      }
    }
  }
}

using PanelTile = void (*)(const PanelProduct&, size_t row, size_t first);

template <size_t kVectors, size_t... kRows>
PanelTile panel_tile_for(size_t rows, std::index_sequence<kRows...>) {
  static constexpr PanelTile kTiles[] = {panel_tile<kRows + 1, kVectors>...};
  return kTiles[rows - 1];
}

// Multiplies rows [0, count) with channels [first, last), in tiles of about equal height.
void multiply_panels(const PanelProduct& p, size_t count, size_t first, size_t last) {
  constexpr std::make_index_sequence<kMostRows> kHeights;
  const size_t tiles = (count + kMostRows - 1) / kMostRows;
  for (size_t channel = first; channel < std::min(last, p.channels); channel += kTileChannels) {
    const bool wide = std::min(last, p.channels) - channel > kLanes;
    for (size_t t = 0; t < tiles; ++t) {
      const size_t from = count * t / tiles;
      const size_t rows = count * (t + 1) / tiles - from;
      const PanelTile tile =
          wide ? panel_tile_for<kMostVectors>(rows, kHeights) : panel_tile_for<1>(rows, kHeights);
      tile(p, from, channel);
    }
  }
}

// The address in x of the first window element at `y` and `x`, which may be outside of x.
HWY_INLINE const float* window_of(const SlideJob& j, const Taps& y, const Taps& x) {
  return j.x + (y.from * j.columns.in + x.from) * static_cast<int64_t>(j.channels);
}

// Outputs [begin, end) of a row whose kSide x kSide windows are inside x, for the channels of
// `part` from `channel` on.
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

// kOutputs neighbouring outputs of a row from `o` on whose windows have all their columns inside x,
// for the channels of `part`.
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

// Calls f(channel, part) for the vectors of channels [first, last).
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

// One output whose window may be partly outside of x.
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

// Row o_row of the outputs, channels [first, last).
void slide_row(const SlideJob& j, size_t o_row, size_t first, size_t last) {
  const WindowAxis& c = j.columns;
  const size_t outputs = to_size(c.out);
  const Taps y(j.rows, o_row);
  // The outputs whose windows have all their columns inside x.
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

// Folds BatchNorm, or a bias, of a channel into a scale and a shift.
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
HWY_EXPORT(fold_statistics);

// With fewer products, a second thread costs more than it saves. The second limit is for a task of
// a thread that has several tasks, so that all threads end together. A sliding window takes about
// three times as long per product.
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

// Number of outputs per block, and number of input floats that a block reads, in place or copied.
// The block meets all panels while it is in the cache.
constexpr size_t kLeastOfBlock = 24;
constexpr size_t kMostOfBlock = 384;
constexpr size_t kReadFloats = size_t{1} << 15;
constexpr size_t kCopiedFloats = size_t{1} << 14;
// Divisible by every tile height.
constexpr size_t kTileUnit = 12;

size_t padded_channels(const Convolution& c) {
  return to_size(packed_blocks(c.groups * c.outputs) * kPackedOutputs);
}

size_t depth_of(const Convolution& c) { return to_size(c.inputs * c.windows.window()); }

// True if all windows are completely inside x.
bool has_all(const Convolution& c) {
  return std::ranges::all_of(c.windows.axis, [](const WindowAxis& a) {
    return a.pad == 0 && (a.out - 1) * a.stride + a.reach() <= a.in;
  });
}

// Number of outputs of an axis whose windows fit in `size` elements.
size_t outputs_in(const WindowAxis& a, size_t size) {
  return size < to_size(a.reach()) ? 0 : (size - to_size(a.reach())) / to_size(a.stride) + 1;
}

// Several samples, several rows of one sample, or several columns of one row.
struct Part {
  size_t sample, samples;
  size_t row, rows;
  size_t column, columns;
};

Part part_of(const Convolution& c, size_t begin, size_t count) {
  const size_t wide = to_size(c.windows.axis[2].out), all = to_size(c.windows.outputs());
  const size_t last = begin + count - 1;
  Part p{begin / all, last / all - begin / all + 1, 0, all / wide, 0, wide};
  if (p.samples == 1) {
    p.row = begin % all / wide;
    p.rows = last % all / wide - p.row + 1;
  }
  if (p.samples * p.rows == 1) {
    p.column = begin % wide;
    p.columns = count;
  }
  return p;
}

// Where the windows of a part read their elements: in x, or in a copy with zeros around x. For a
// single row of outputs, the copy contains only the lines of its windows.
struct Frame {
  Frame(const Convolution& c, const Part& p, bool copied) {
    const auto& [az, ay, ax] = c.windows.axis;
    const auto elements = [&](const WindowAxis& a, size_t outputs) {
      return copied ? (outputs - 1) * to_size(a.stride) + to_size(a.reach()) : to_size(a.in);
    };
    const bool alone = copied && p.rows == 1;
    width = elements(ax, p.columns);
    lines = alone ? to_size(ay.window) : elements(ay, p.rows);
    apart = alone ? 1 : to_size(ay.dilation);
    line = width * to_size(c.inputs);
  }

  size_t width, lines;  // of a sample
  size_t apart;         // lines between two window lines
  size_t line;          // in floats
};

// How the outputs are divided into blocks of neighbours. If x is copied, each block is a Part.
struct Cut {
  Cut(const Convolution& c, const Threads& threads)
      : outputs(to_size(c.batch * c.windows.outputs())),
        tasks(tasks_of(outputs * depth_of(c) * to_size(c.outputs), threads.count())),
        copies(!has_all(c)),
        group(outputs) {
    if (outputs == 0) {
      return;
    }
    const auto& [az, ay, ax] = c.windows.axis;
    const size_t most = std::clamp((outputs + tasks - 1) / tasks, kLeastOfBlock, kMostOfBlock);
    const auto floats_over = [](size_t n) { return kCopiedFloats / std::max<size_t>(n, 1); };
    if (!copies) {
      const size_t step = to_size(c.inputs * (ax.in == 1 ? ay.stride : ax.stride));
      cut(round_up(outputs, kTileUnit) / kTileUnit,
          std::clamp(kReadFloats / std::max<size_t>(step, 1), kLeastOfBlock, most) / kTileUnit,
          kTileUnit);
      return;
    }
    const size_t wide = to_size(ax.out), high = to_size(ay.out);
    const size_t columns = outputs_in(ax, floats_over(to_size(ay.window * c.inputs)));
    if (columns < wide || most < wide) {
      group = wide;
      cut(wide, std::clamp(columns, kLeastOfBlock, most), 1);
    } else {
      group = wide * high;
      const size_t line = Frame(c, {0, 1, 0, 1, 0, wide}, true).line;
      cut(high, std::clamp<size_t>(outputs_in(ay, floats_over(line)), 1, most / wide), wide);
    }
    if (block == wide * high) {
      const Frame sample(c, {0, 1, 0, high, 0, wide}, true);
      group = outputs;
      cut(to_size(c.batch),
          std::clamp<size_t>(floats_over(sample.lines * sample.line), 1, most / block), block);
    }
    const Part largest = part_of(c, 0, block);
    const Frame frame(c, largest, true);
    copied = largest.samples * frame.lines * frame.line;
  }

  size_t blocks() const { return outputs == 0 ? 0 : outputs / group * in_group(); }
  size_t begin(size_t i) const { return i / in_group() * group + i % in_group() * block; }
  size_t count(size_t i) const { return std::min(block, group - i % in_group() * block); }

  size_t outputs;
  size_t tasks;  // desired number
  bool copies;
  size_t group;       // outputs that are divided equally
  size_t block = 1;   // outputs per block
  size_t copied = 0;  // maximum number of floats per block

 private:
  // Divides a group into blocks of about equal size, with at most `most` times `unit` outputs.
  void cut(size_t units, size_t most, size_t unit) {
    const size_t parts = (units + most - 1) / most;
    block = (units + parts - 1) / parts * unit;
  }
  size_t in_group() const { return (group + block - 1) / block; }
};

void copy_part(const Convolution& c, const Part& p, const Frame& f, const float* x, float* to) {
  const auto& [az, ay, ax] = c.windows.axis;
  const auto width = static_cast<int64_t>(f.width);
  const int64_t left = static_cast<int64_t>(p.column) * ax.stride - ax.pad;
  const int64_t first = std::clamp<int64_t>(-left, 0, width);
  const int64_t last = std::clamp(ax.in - left, first, width);
  const int64_t top = static_cast<int64_t>(p.row) * ay.stride - ay.pad;
  const int64_t step = p.rows == 1 ? ay.dilation : 1;
  for (size_t line = 0; line < p.samples * f.lines; ++line, to += f.line) {
    const int64_t at = top + static_cast<int64_t>(line % f.lines) * step;
    if (at < 0 || at >= ay.in) {
      std::fill_n(to, f.line, 0.0f);
      continue;
    }
    const auto sample = static_cast<int64_t>(p.sample + line / f.lines);
    const float* const from = x + ((sample * ay.in + at) * ax.in + left + first) * c.inputs;
    std::fill(to, to + first * c.inputs, 0.0f);
    std::copy_n(from, (last - first) * c.inputs, to + first * c.inputs);
    std::fill(to + last * c.inputs, to + width * c.inputs, 0.0f);
  }
}

// The positions of the windows of outputs [begin, begin + count), counted from the first output of
// the part.
void find_windows(const Convolution& c, const Part& p, const Frame& f, size_t begin, size_t count,
                  size_t* from) {
  const auto& [az, ay, ax] = c.windows.axis;
  const size_t wide = to_size(ax.out), high = to_size(ay.out);
  const size_t column_step = to_size(ax.stride * c.inputs), row_step = to_size(ay.stride) * f.line;
  size_t column = begin % wide, row = begin / wide % high, sample = begin / wide / high;
  for (size_t i = 0; i < count; ++i, ++column) {
    if (column == wide) {
      column = 0;
      row = row + 1 == high ? 0 : row + 1;
      sample += row == 0 ? 1 : 0;
    }
    from[i] = (sample - p.sample) * f.lines * f.line + (row - p.row) * row_step +
              (column - p.column) * column_step;
  }
}

PanelProduct product_of(const FusedConvolution& f, const Finish& finish, const Frame& frame) {
  const Convolution& c = f.shape;
  const auto& [az, ay, ax] = c.windows.axis;
  PanelProduct p{};
  p.a = f.x;
  p.lines = to_size(ay.window);
  p.line_step = frame.apart * frame.line;
  p.pieces = ax.dilation == 1 ? 1 : to_size(ax.window);
  p.piece_step = to_size(ax.dilation * c.inputs);
  p.run = to_size(ax.dilation == 1 ? ax.window * c.inputs : c.inputs);
  if (p.pieces == 1 && p.run == p.line_step) {
    p.run *= std::exchange(p.lines, 1);
  }
  p.weight = f.weight;
  p.depth = depth_of(c);
  p.addend = f.addend;
  p.y = f.y;
  p.channels = to_size(c.outputs);
  p.finish = finish;
  return p;
}

void multiply(Threads& threads, const FusedConvolution& f, const Finish& finish, float* copies) {
  const Convolution& c = f.shape;
  const Cut cut(c, threads);
  const size_t panels = padded_channels(c) / kPanel, blocks = cut.blocks();
  const size_t block_tasks = std::min(cut.tasks, blocks);
  const size_t panel_tasks =
      blocks == 0 ? 0 : std::clamp<size_t>(cut.tasks / block_tasks, 1, std::max<size_t>(panels, 1));
  const Part all{
      0, to_size(c.batch), 0, to_size(c.windows.axis[1].out), 0, to_size(c.windows.axis[2].out)};
  threads.parallel_for(block_tasks * panel_tasks, [&](size_t task, size_t thread) {
    const size_t of = task / block_tasks, at = task % block_tasks;
    const size_t first = panels * of / panel_tasks * kPanel;
    const size_t last = panels * (of + 1) / panel_tasks * kPanel;
    float* const copy = copies + thread * cut.copied;
    size_t from[kMostOfBlock];
    for (size_t b = blocks * at / block_tasks; b < blocks * (at + 1) / block_tasks; ++b) {
      const size_t begin = cut.begin(b), count = cut.count(b);
      const Part part = cut.copies ? part_of(c, begin, count) : all;
      const Frame frame(c, part, cut.copies);
      find_windows(c, part, frame, begin, count, from);
      PanelProduct p = product_of(f, finish, frame);
      if (cut.copies) {
        copy_part(c, part, frame, f.x, copy);
        p.a = copy;
      }
      p.from = from;
      p.y += begin * p.channels;
      p.addend = p.addend == nullptr ? nullptr : p.addend + begin * p.channels;
      HWY_DYNAMIC_DISPATCH(multiply_panels)(p, count, first, last);
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
  const size_t copied = c.groups == 1 ? threads.count() * Cut(c, threads).copied : 0;
  return round_up((2 * padded_channels(c) + copied) * sizeof(float), 64);
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
