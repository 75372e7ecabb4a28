// See fused_conv.h.
#include "compute/fused_conv.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "compute/fused_conv_blocks.h"
#include "compute/targets.h"
#include "hwy/cache_control.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/fused_conv.cpp"
#include "hwy/foreach_target.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_FUSED_CONV_ONCE
#define BOWLINE_CPU_FUSED_CONV_ONCE
namespace bowline::detail::cpu {
namespace {

constexpr size_t kPanel = kPackedOutputs;

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
namespace bowline::detail::cpu::HWY_NAMESPACE {

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

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

// A sliding window takes about three times as long per product as a panel.
constexpr size_t kSlideFactor = 3;

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
      BOWLINE_BEST(multiply_panels)(p, count, first, last);
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
      BOWLINE_BEST(slide_row)(job, r % to_size(ay.out), first, last);
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
  BOWLINE_BEST(fold_statistics)(f, channels, scale, shift);
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
