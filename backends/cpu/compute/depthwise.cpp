// See depthwise.h.
#include "compute/depthwise.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "compute/convolution.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/depthwise.cpp"
#include "hwy/foreach_target.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_DEPTHWISE_ONCE
#define BOWLINE_CPU_DEPTHWISE_ONCE
namespace bowline::detail::cpu {
namespace {

constexpr size_t kMostElements = 8;  // maximum number of window elements along an axis
constexpr size_t kMostLanes = 16;
// Number of products that are added before the lanes are added.
constexpr size_t kElementsOfSum = 4096;
// Number of channels whose sums a thread keeps at a time. Large planes are read in memory order.
constexpr size_t kChannelsOfSum = 16;
constexpr size_t kLargePlane = 256;
// Number of samples of a channel that are added in registers.
constexpr size_t kFramesOfSum = 8;

constexpr size_t aligned(size_t floats) {
  return (floats + kMostLanes - 1) / kMostLanes * kMostLanes;
}

// A plane in a frame of zeros. The rows and columns with the same index modulo the stride form a
// part: a run of `size` elements, one per output, with zeros before and behind it.
struct Layout {
  explicit Layout(const Convolution& c)
      : stride(to_size(c.windows.axis[2].stride)),
        height(to_size(c.windows.axis[1].out)),
        width(to_size(c.windows.axis[2].out)),
        in_height(to_size(c.windows.axis[1].in)),
        in_width(to_size(c.windows.axis[2].in)),
        size(height * width) {
    size_t reach = 0;
    for (const int64_t k : {int64_t{0}, c.windows.axis[1].window - 1}) {
      reach = std::max(reach, to_size(std::abs(step(c.windows.axis[1], k))) * width);
    }
    for (const int64_t k : {int64_t{0}, c.windows.axis[2].window - 1}) {
      reach = std::max(reach, to_size(std::abs(step(c.windows.axis[2], k))) + reach);
    }
    margin = aligned(reach + kMostLanes);
    part = margin + aligned(size);
    frame = stride * stride * part + margin + kMostLanes;
  }
  // The distance, within this part, from an output to element k of its window.
  static int64_t step(const WindowAxis& a, int64_t k) {
    const int64_t at = k * a.dilation - a.pad;
    return at >= 0 ? at / a.stride : -((-at + a.stride - 1) / a.stride);
  }
  static int64_t part_of(const WindowAxis& a, int64_t k) {
    return k * a.dilation - a.pad - step(a, k) * a.stride;
  }

  size_t stride;
  size_t height, width;        // of the outputs of the window
  size_t in_height, in_width;  // of the input plane
  size_t size;
  size_t margin, part, frame;  // in floats
};

// Window elements that contribute to outputs of one kind. Element (r, c) is at distance rows[r] +
// columns[c].
struct Taps {
  size_t row_count = 0, column_count = 0;
  size_t elements[kMostElements * kMostElements];  // index in the window, row by row
  ptrdiff_t rows[kMostElements], columns[kMostElements];
  // One mask per output of a row, and a vector more: all bits are set if the window element is in
  // the row of the output, otherwise none.
  const float* masks[kMostElements];
};

struct PlanesJob {
  Layout layout;
  Taps taps[4];   // one, or one per part
  float* frames;  // the frames of a thread, then its parts or sums
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Copies a plane as large as its outputs into a frame whose margins are zero.
void frame_plane(const Layout& l, const float* x, float* frame) {
  float* const to = frame + l.margin;
  for_vectors(l.size, [=](size_t i, auto part)
                          HWY_ATTR { hn::Store(part.load(x + i), FloatTag(), to + i); });
}

// Groups rows and columns by their index modulo the stride.
void frame_parts(const Layout& l, const float* x, float* frame) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t y = 0; y < l.in_height; ++y) {
    for (size_t c = 0; c < l.in_width; ++c) {
      frame[l.margin + (y % 2 * 2 + c % 2) * l.part + y / 2 * l.width + c / 2] =
          x[y * l.in_width + c];
    }
  }
#else
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = l.in_width / (2 * lanes) * (2 * lanes), rest = l.in_width - whole;
  const PartialVector low(HWY_MIN(rest, lanes)), high(rest - HWY_MIN(rest, lanes));
  for (size_t y = 0; y < l.in_height; ++y, x += l.in_width) {
    // Values written past the end of a row are overwritten by the next row, or by a zero of the
    // margin.
    float* const even = frame + l.margin + y % 2 * 2 * l.part + y / 2 * l.width;
    float* const odd = even + l.part;
    for (size_t c = 0; c < whole; c += 2 * lanes) {
      const FloatVector a = hn::LoadU(d, x + c), b = hn::LoadU(d, x + c + lanes);
      hn::StoreU(hn::ConcatEven(d, b, a), d, even + c / 2);
      hn::StoreU(hn::ConcatOdd(d, b, a), d, odd + c / 2);
    }
    if (rest > 0) {
      const FloatVector a = low.load(x + whole);
      const FloatVector b = rest > lanes ? high.load(x + whole + lanes) : hn::Zero(d);
      hn::StoreU(hn::ConcatEven(d, b, a), d, even + whole / 2);
      hn::StoreU(hn::ConcatOdd(d, b, a), d, odd + whole / 2);
    }
  }
#endif
}

void frame(const Layout& l, const float* x, float* to) {
  if (l.stride == 1) {
    frame_plane(l, x, to);
  } else {
    frame_parts(l, x, to);
  }
}

// Iterates over the vectors of a run, and over the columns at which they start.
struct Column {
  explicit Column(size_t row) : width(row), step(hn::Lanes(FloatTag()) % row) {}
  void next() {
    at += step;
    at -= at >= width ? width : 0;
  }
  size_t width, step, at = 0;
};

// to[i] = bias + sum of weight * from[i + ...]. kRows and kColumns are the numbers of taps, or 0
// for any.
template <size_t kRows, size_t kColumns>
HWY_NOINLINE void slide(const Taps& t, size_t width, const float* HWY_RESTRICT from,
                        const float* weight, float bias, size_t n, float* HWY_RESTRICT to) {
  const FloatTag d;
  constexpr bool kFixed = kRows != 0;
  const size_t lanes = hn::Lanes(d);
  const size_t rows = kFixed ? kRows : t.row_count, columns = kFixed ? kColumns : t.column_count;
  FloatVector w[kFixed ? kRows : 1][kFixed ? kColumns : 1];
  if constexpr (kFixed) {
    HWY_UNROLL(3)
    for (size_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(3)
      for (size_t c = 0; c < kColumns; ++c) {
        w[r][c] = hn::Set(d, weight[t.elements[r * kColumns + c]]);
      }
    }
  }
  const FloatVector first = hn::Set(d, bias);
  const auto sum_at = [&](size_t i, size_t column) HWY_ATTR {
    FloatVector sum = first;
    HWY_UNROLL(3)
    for (size_t c = 0; c < columns; ++c) {
      const float* const x = from + t.columns[c] + i;
      FloatVector of_column = hn::Zero(d);
      HWY_UNROLL(3)
      for (size_t r = 0; r < rows; ++r) {
        const FloatVector v = hn::LoadU(d, x + t.rows[r]);
        if constexpr (kFixed) {
          of_column = r == 0 ? hn::Mul(w[r][c], v) : hn::MulAdd(w[r][c], v, of_column);
        } else {
          of_column = hn::MulAdd(hn::Set(d, weight[t.elements[r * columns + c]]), v, of_column);
        }
      }
      sum = hn::Add(sum, hn::And(of_column, hn::LoadU(d, t.masks[c] + column)));
    }
    return sum;
  };
  Column column(width);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes, column.next()) {
    hn::StoreU(sum_at(i, column.at), d, to + i);
  }
  if (i < n) {
    PartialVector(n - i).store(sum_at(i, column.at), to + i);
  }
}

void slide_taps(const Taps& t, size_t width, const float* from, const float* weight, float bias,
                size_t n, float* to) {
  const auto is = [&](size_t rows, size_t columns) {
    return t.row_count == rows && t.column_count == columns;
  };
  const auto run = is(3, 3)   ? slide<3, 3>
                   : is(2, 2) ? slide<2, 2>
                   : is(2, 1) ? slide<2, 1>
                   : is(1, 2) ? slide<1, 2>
                   : is(1, 1) ? slide<1, 1>
                              : slide<0, 0>;
  run(t, width, from, weight, bias, n, to);
}

// Calls each(index, frame) for planes [begin, end). Each plane is framed while the previous plane
// is used.
template <class Where, class F>
void for_frames(const PlanesJob& job, size_t begin, size_t end, const Where& where,
                void (*make)(const Layout&, const float*, float*), F&& each) {
  const auto at = [&](size_t p) { return job.frames + p % 2 * job.layout.frame; };
  if (begin < end) {
    make(job.layout, where(begin), at(begin));
  }
  for (size_t p = begin; p < end; ++p) {
    if (p + 1 < end) {
      make(job.layout, where(p + 1), at(p + 1));
    }
    each(p, at(p) + job.layout.margin);
  }
}

void slide_planes(const PlanesJob& job, size_t begin, size_t end, size_t channels, const float* x,
                  const float* weight, size_t window, const float* bias, float* y) {
  const Layout& l = job.layout;
  size_t channel = begin % channels;
  const auto where = [&](size_t p) { return x + p * l.in_height * l.in_width; };
  for_frames(job, begin, end, where, frame, [&](size_t p, const float* from) HWY_ATTR {
    slide_taps(job.taps[0], l.width, from, weight + channel * window,
               bias != nullptr ? bias[channel] : 0.0f, l.size, y + p * l.size);
    channel = channel + 1 == channels ? 0 : channel + 1;
  });
}

// Copies the parts back to their rows and columns.
void join_parts(const Layout& l, const float* parts, float* x) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t y = 0; y < l.in_height; ++y) {
    for (size_t c = 0; c < l.in_width; ++c) {
      x[y * l.in_width + c] = parts[(y % 2 * 2 + c % 2) * l.part + y / 2 * l.width + c / 2];
    }
  }
#else
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  size_t left = l.in_height * l.in_width;  // of the plane
  for (size_t y = 0; y < l.in_height; ++y, x += l.in_width, left -= l.in_width) {
    const float* const even = parts + y % 2 * 2 * l.part + y / 2 * l.width;
    const float* const odd = even + l.part;
    for (size_t c = 0; c < l.in_width; c += 2 * lanes) {
      const FloatVector a = hn::LoadU(d, even + c / 2), b = hn::LoadU(d, odd + c / 2);
      if (c + 2 * lanes <= left) {  // values past the end of the row are overwritten later
        hn::StoreInterleaved2(a, b, d, x + c);
      } else {
        HWY_ALIGN float both[2 * hn::MaxLanes(d)];
        hn::StoreInterleaved2(a, b, d, both);
        std::copy_n(both, HWY_MIN(l.in_width - c, 2 * lanes), x + c);
      }
    }
  }
#endif
}

void slide_planes_back(const PlanesJob& job, size_t begin, size_t end, size_t channels,
                       const float* dy, const float* weight, size_t window, const float* bias,
                       float* dx) {
  const Layout& l = job.layout;
  float* const parts = job.frames + 2 * l.frame;
  size_t channel = begin % channels;
  for_frames(
      job, begin, end, [&](size_t p) { return dy + p * l.size; }, frame_plane,
      [&](size_t p, const float* from) HWY_ATTR {
        const float* const w = weight + channel * window;
        const float add = bias != nullptr ? bias[channel] : 0.0f;
        channel = channel + 1 == channels ? 0 : channel + 1;
        float* const to = dx + p * l.in_height * l.in_width;
        for (size_t k = 0; k < l.stride * l.stride; ++k) {
          slide_taps(job.taps[k], l.width, from, w, add, l.size,
                     l.stride == 1 ? to : parts + k * l.part);
        }
        if (l.stride > 1) {
          join_parts(l, parts, to);
        }
      });
}

// Planes, and the planes over which their windows slide.
struct Factors {
  const float *x, *dy;
  size_t count, x_step, dy_step;
};
// Adds the products of elements [begin, end) of the planes to the sums, one vector per tap of 3 x
// 3.
HWY_NOINLINE void add_products(const Taps& t, size_t width, const Factors& f, size_t begin,
                               size_t end, float* HWY_RESTRICT sums) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVector sum[3][3];
  HWY_UNROLL(3)
  for (size_t r = 0; r < 3; ++r) {
    HWY_UNROLL(3)
    for (size_t c = 0; c < 3; ++c) {
      sum[r][c] = hn::Load(d, sums + (r * 3 + c) * lanes);
    }
  }
  const float* HWY_RESTRICT from = f.x;
  const float* HWY_RESTRICT dy = f.dy;
  const PartialVector rest((end - begin) % lanes);
  const auto add_at = [&](size_t i, size_t column, auto part) HWY_ATTR {
    const FloatVector v = part.load(dy + i);
    HWY_UNROLL(3)
    for (size_t c = 0; c < 3; ++c) {
      const FloatVector masked = hn::And(v, hn::LoadU(d, t.masks[c] + column));
      const float* const x = from + t.columns[c] + i;
      HWY_UNROLL(3)
      for (size_t r = 0; r < 3; ++r) {
        sum[r][c] = hn::MulAdd(masked, hn::LoadU(d, x + t.rows[r]), sum[r][c]);
      }
    }
  };
  Column column(width);
  const size_t first = begin % width;
  for (size_t p = 0; p < f.count; ++p, from += f.x_step, dy += f.dy_step) {
    column.at = first;
    size_t i = begin;
    for (; i + lanes <= end; i += lanes, column.next()) {
      add_at(i, column.at, WholeVector{});
    }
    if (i < end) {
      add_at(i, column.at, rest);
    }
  }
  HWY_UNROLL(3)
  for (size_t r = 0; r < 3; ++r) {
    HWY_UNROLL(3)
    for (size_t c = 0; c < 3; ++c) {
      hn::Store(sum[r][c], d, sums + (r * 3 + c) * lanes);
    }
  }
}

// Adds the lanes of the sums to dweight, and clears the sums.
void add_lanes(float* sums, float* dweight) {
  const FloatTag d;
  for (size_t k = 0; k < 9; ++k, sums += hn::Lanes(d)) {
    dweight[k] += hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums)));
    hn::Store(hn::Zero(d), d, sums);
  }
}

// dweight [3, 3] of a channel with small planes: the sums stay in registers for several samples.
void sum_small_planes(const PlanesJob& job, size_t batch, size_t all, const float* x,
                      const float* dy, float* dweight) {
  const Layout& l = job.layout;
  float* const sums = job.frames + kFramesOfSum * l.frame;
  std::fill_n(dweight, 9, 0.0f);
  std::fill_n(sums, 9 * hn::Lanes(FloatTag()), 0.0f);
  const size_t x_step = all * l.in_height * l.in_width, dy_step = all * l.size;
  size_t summed = 0;
  for (size_t n = 0; n < batch; n += kFramesOfSum) {
    const size_t count = HWY_MIN(kFramesOfSum, batch - n);
    for (size_t i = 0; i < count; ++i) {
      frame(l, x + (n + i) * x_step, job.frames + i * l.frame);
    }
    add_products(job.taps[0], l.width,
                 {job.frames + l.margin, dy + n * dy_step, count, l.frame, dy_step}, 0, l.size,
                 sums);
    summed += count * l.size;
    if (summed >= kElementsOfSum || n + count == batch) {
      add_lanes(sums, dweight);
      summed = 0;
    }
  }
}

// dweight [channels, 3, 3] of neighbouring channels, sample by sample in memory order.
void sum_large_planes(const PlanesJob& job, size_t batch, size_t all, size_t channels,
                      const float* x, const float* dy, float* dweight) {
  const Layout& l = job.layout;
  const size_t sums_of = 9 * hn::Lanes(FloatTag());
  float* const sums = job.frames + kFramesOfSum * l.frame;
  std::fill_n(dweight, 9 * channels, 0.0f);
  std::fill_n(sums, channels * sums_of, 0.0f);
  size_t before = 0;  // elements per channel
  for (size_t n = 0; n < batch; ++n, before += l.size) {
    const float* const planes = x + n * all * l.in_height * l.in_width;
    for_frames(
        job, 0, channels, [&](size_t c) { return planes + c * l.in_height * l.in_width; }, frame,
        [&](size_t c, const float* from) HWY_ATTR {
          const float* const by = dy + (n * all + c) * l.size;
          for (size_t begin = 0; begin < l.size; begin += kElementsOfSum) {
            const size_t end = HWY_MIN(l.size, begin + kElementsOfSum);
            add_products(job.taps[0], l.width, {from, by, 1, 0, 0}, begin, end, sums + c * sums_of);
            if ((before + end) / kElementsOfSum > (before + begin) / kElementsOfSum ||
                before + end == batch * l.size) {
              add_lanes(sums + c * sums_of, dweight + 9 * c);
            }
          }
        });
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

// Rows of masks, one per column of the window and direction.
size_t mask_floats(const Convolution& c) {
  return to_size(c.windows.axis[2].window) * aligned(to_size(c.windows.axis[2].out) + kMostLanes);
}

// The masks are at the start of the scratch memory, followed by the memory of each thread.
struct Runs {
  Runs(const Convolution& c, float* scratch, bool back)
      : job{Layout(c), {}, nullptr}, threads(scratch + mask_floats(c)) {
    const auto& [az, ay, ax] = c.windows.axis;
    const Layout& l = job.layout;
    const int64_t way = back ? -1 : 1;
    const size_t stride = l.stride;
    for (int64_t kx = 0; kx < ax.window; ++kx) {
      const int64_t step = way * Layout::step(ax, kx);
      float* const mask = scratch + to_size(kx) * aligned(l.width + kMostLanes);
      for (size_t i = 0; i < l.width + kMostLanes; ++i) {
        const int64_t at = static_cast<int64_t>(i % l.width) + step;
        const uint32_t bits = at >= 0 && at < ax.out ? 0xFFFFFFFF : 0;
        std::memcpy(mask + i, &bits, sizeof bits);
      }
    }
    for (size_t k = 0; k < (back ? stride * stride : 1); ++k) {
      Taps& t = job.taps[k];
      size_t rows[kMostElements], columns[kMostElements];  // of the window
      for (int64_t ky = 0; ky < ay.window; ++ky) {
        const auto part = to_size(Layout::part_of(ay, ky));
        if (back && part != k / stride) {
          continue;
        }
        rows[t.row_count] = to_size(ky);
        t.rows[t.row_count++] = way * Layout::step(ay, ky) * static_cast<ptrdiff_t>(l.width) +
                                static_cast<ptrdiff_t>(back ? 0 : part * stride * l.part);
      }
      for (int64_t kx = 0; kx < ax.window; ++kx) {
        const auto part = to_size(Layout::part_of(ax, kx));
        if (back && part != k % stride) {
          continue;
        }
        t.masks[t.column_count] = scratch + to_size(kx) * aligned(l.width + kMostLanes);
        columns[t.column_count] = to_size(kx);
        t.columns[t.column_count++] =
            way * Layout::step(ax, kx) + static_cast<ptrdiff_t>(back ? 0 : part * l.part);
      }
      for (size_t i = 0; i < t.row_count * t.column_count; ++i) {
        t.elements[i] = rows[i / t.column_count] * to_size(ax.window) + columns[i % t.column_count];
      }
    }
  }
  static size_t thread_floats(const Layout& l) {
    const size_t parts = l.stride == 1 ? 0 : 4 * l.part + kMostLanes;
    return aligned(
        std::max(2 * l.frame + parts, kFramesOfSum * l.frame + kChannelsOfSum * 9 * kMostLanes));
  }
  // The job of a thread, with `frames` frames filled with zeros.
  PlanesJob of(size_t thread, size_t frames = 2) const {
    PlanesJob own = job;
    own.frames = threads + thread * thread_floats(job.layout);
    std::fill_n(own.frames, frames * job.layout.frame, 0.0f);
    return own;
  }

  PlanesJob job;
  float* threads;
};

// Processes all planes in tasks of several planes: slides windows over `from`, or computes the
// gradient of the planes over which they slid.
void slide_all(Threads& threads, const Convolution& c, bool back, const float* from,
               const float* weight, const float* bias, float* to, float* scratch) {
  const Runs runs(c, scratch, back);
  const auto slide = back ? BOWLINE_BEST(slide_planes_back) : BOWLINE_BEST(slide_planes);
  const size_t channels = to_size(c.groups), planes = to_size(c.batch) * channels;
  const size_t unit = planes_per_task(planes, threads);
  threads.parallel_for((planes + unit - 1) / unit, [&](size_t task, size_t thread) {
    slide(runs.of(thread), task * unit, std::min(planes, (task + 1) * unit), channels, from, weight,
          to_size(c.windows.window()), bias, to);
  });
}

}  // namespace

bool slides_in_runs(const Convolution& c) {
  const auto& [az, ay, ax] = c.windows.axis;
  const auto keeps = [](const WindowAxis& a) {
    return a.window >= 1 && to_size(a.window) <= kMostElements && a.pad < a.reach() &&
           a.dilation <= a.out && (a.stride == 1 || a.stride == 2) && a.out >= 1 &&
           a.out == (a.in + a.stride - 1) / a.stride;
  };
  return c.inputs == 1 && c.outputs == 1 && az.in == 1 && az.out == 1 && az.window == 1 &&
         ay.stride == ax.stride && keeps(ay) && keeps(ax);
}

bool sums_in_runs(const Convolution& c) {
  return slides_in_runs(c) && c.windows.axis[1].window == 3 && c.windows.axis[2].window == 3;
}

size_t run_scratch_floats(const Convolution& c, const Threads& threads) {
  return mask_floats(c) + threads.count() * Runs::thread_floats(Layout(c));
}

void slide_runs(Threads& threads, const Convolution& c, const float* x, const float* weight,
                const float* bias, float* y, float* scratch) {
  slide_all(threads, c, false, x, weight, bias, y, scratch);
}

void slide_runs_back(Threads& threads, const Convolution& c, const float* dy, const float* weight,
                     const float* bias, float* dx, float* scratch) {
  slide_all(threads, c, true, dy, weight, bias, dx, scratch);
}

void sum_runs(Threads& threads, const Convolution& c, const float* x, const float* dy,
              float* dweight, float* scratch) {
  const Runs runs(c, scratch, false);
  const Layout& l = runs.job.layout;
  const size_t channels = to_size(c.groups);
  const size_t unit = std::clamp<size_t>(channels / threads.count(), 1, kChannelsOfSum);
  const size_t plane = l.in_height * l.in_width, batch = to_size(c.batch);
  const bool large = plane >= kLargePlane;
  threads.parallel_for((channels + unit - 1) / unit, [&](size_t task, size_t thread) {
    const PlanesJob job = runs.of(thread, large ? 2 : kFramesOfSum);
    const size_t begin = task * unit, end = std::min(channels, begin + unit);
    if (large) {
      BOWLINE_BEST(sum_large_planes)
      (job, batch, channels, end - begin, x + begin * plane, dy + begin * l.size,
       dweight + begin * 9);
    }
    for (size_t g = begin; g < end && !large; ++g) {
      BOWLINE_BEST(sum_small_planes)
      (job, batch, channels, x + g * plane, dy + g * l.size, dweight + g * 9);
    }
  });
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
