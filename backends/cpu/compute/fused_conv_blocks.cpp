#include "compute/fused_conv_blocks.h"

#include <algorithm>

#include "base/checked.h"

namespace bowline::detail::cpu {
namespace {

// A convolution with fewer products than kLeastProducts runs on one thread, because a second thread
// costs more than it saves. Larger convolutions are divided into several tasks per thread, of about
// kProductsOfTask products, so that all threads end together.
constexpr size_t kLeastProducts = size_t{1} << 18;
constexpr size_t kProductsOfTask = size_t{1} << 19;
constexpr size_t kMostTasksPerThread = 4;

// Number of outputs per block, and number of input floats that a block reads, in place or copied.
// A block is multiplied with all panels while it is in the cache.
constexpr size_t kLeastOfBlock = 24;
constexpr size_t kReadFloats = size_t{1} << 15;
constexpr size_t kCopiedFloats = size_t{1} << 14;
// Divisible by every tile height.
constexpr size_t kTileUnit = 12;

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

}  // namespace

size_t tasks_of(size_t products, size_t threads) {
  return threads == 1 || products < kLeastProducts
             ? 1
             : threads *
                   std::clamp<size_t>(products / threads / kProductsOfTask, 1, kMostTasksPerThread);
}

size_t padded_channels(const Convolution& c) {
  return to_size(packed_blocks(c.groups * c.outputs) * kPackedOutputs);
}

size_t depth_of(const Convolution& c) { return to_size(c.inputs * c.windows.window()); }

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

Frame::Frame(const Convolution& c, const Part& p, bool copied) {
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

Cut::Cut(const Convolution& c, const Threads& threads)
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

}  // namespace bowline::detail::cpu
