// See convolution.h.
#include "compute/convolution.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compute/depthwise.h"
#include "compute/gemm.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/convolution.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/gemm-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_CONVOLUTION_ONCE
#define BOWLINE_CPU_CONVOLUTION_ONCE
namespace bowline::detail::cpu {
namespace {

constexpr size_t to_size(int64_t n) { return static_cast<size_t>(n); }

// A plane with zeros around it, so that all windows are complete. Rows are grouped by their index
// modulo the stride, and so are the elements of a row. Elements that neighbouring outputs multiply
// with the same window element are therefore neighbours, within a row and from row to row.
struct Padded {
  explicit Padded(const Windows& w) : windows(w) {
    for (size_t a = 0; a < kMostSpatial; ++a) {
      extent[a] = to_size((w.axis[a].out - 1) * w.axis[a].stride + w.axis[a].reach());
      parts[a] = std::min(to_size(w.axis[a].stride), extent[a]);  // a single output needs no stride
    }
    rows = (extent[1] + parts[1] - 1) / parts[1];
    row = (extent[2] + parts[2] - 1) / parts[2];
  }
  size_t slice() const { return parts[1] * parts[2] * rows * row; }
  size_t floats() const { return extent[0] * slice(); }
  // The position of the window of the first output of a row.
  size_t row_of(size_t z, size_t y) const {
    return z * to_size(windows.axis[0].stride) * slice() + y * row;
  }
  size_t place(size_t z, size_t y, size_t x) const {
    const size_t part = y % parts[1] * parts[2] + x % parts[2];
    return z * slice() + (part * rows + y / parts[1]) * row + x / parts[2];
  }
  // The distance from this position to element k of the window.
  size_t tap(size_t k) const {
    const auto& [az, ay, ax] = windows.axis;
    return place(k / to_size(ax.window * ay.window) * to_size(az.dilation),
                 k / to_size(ax.window) % to_size(ay.window) * to_size(ay.dilation),
                 k % to_size(ax.window) * to_size(ax.dilation));
  }

  Windows windows;
  size_t extent[kMostSpatial];
  size_t parts[kMostSpatial];  // of the rows and of the elements of a row
  size_t rows;                 // per part
  size_t row;                  // elements per row of a part
};

// Runs of n elements, with separate distances in the source and in the target.
struct Pieces {
  size_t rows, pieces, n;
  size_t from_row, from_piece;
  size_t to_row, to_piece;
};
// Rows with fewer outputs are computed together with the gap between rows.
constexpr size_t kShortRow = 32;

// The planes of one group of one sample, and their operands.
struct DirectJob {
  const Padded& padded;
  const size_t* taps;
  size_t window;
  size_t rows_z, rows_y, row;  // of y
  float* staged;               // as large as the padded plane
  bool apart = false;          // rows of y are processed one by one

  // Number of outputs if the rows of y are as far apart as the rows of the padded plane.
  size_t flat() const { return (rows_y - 1) * padded.row + row; }
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

// Copies rows of n elements with gaps between rows.
void copy_rows(size_t rows, size_t n, const float* from, size_t from_row, float* to,
               size_t to_row) {
  for (size_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR { part.store(part.load(from + i), to + i); });
  }
}

// to[i] = from[i * stride]
void take_strided(size_t n, size_t stride, const float* from, float* to) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  // The second element of the last pair may not exist.
  for (; stride == 2 && i + lanes < n; i += lanes) {
    const FloatVector a = hn::LoadU(d, from + 2 * i), b = hn::LoadU(d, from + 2 * i + lanes);
    hn::StoreU(hn::ConcatEven(d, b, a), d, to + i);
  }
#endif
  for (; i < n; ++i) {
    to[i] = from[i * stride];
  }
}

// Rows of n elements: elements 0, 2, 4 ... to `even`, the others to `odd`.
void part_rows(size_t rows, size_t n, const float* from, size_t from_row, float* even, float* odd,
               size_t to_row) {
  for (size_t r = 0; r < rows; ++r, from += from_row, even += to_row, odd += to_row) {
    size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d;
    for (; i + 8 <= n; i += 8) {
      hn::Vec<decltype(d)> a, b;
      hn::LoadInterleaved2(d, from + i, a, b);
      hn::StoreU(a, d, even + i / 2);
      hn::StoreU(b, d, odd + i / 2);
    }
#endif
    for (; i < n; ++i) {
      (i % 2 == 0 ? even : odd)[i / 2] = from[i];
    }
  }
}

// The reverse of part_rows, which adds to the target.
void join_rows(size_t rows, size_t n, const float* even, const float* odd, size_t from_row,
               float* to, size_t to_row) {
  for (size_t r = 0; r < rows; ++r, even += from_row, odd += from_row, to += to_row) {
    size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d;
    for (; i + 8 <= n; i += 8) {
      hn::Vec<decltype(d)> a, b;
      hn::LoadInterleaved2(d, to + i, a, b);
      hn::StoreInterleaved2(hn::Add(a, hn::LoadU(d, even + i / 2)),
                            hn::Add(b, hn::LoadU(d, odd + i / 2)), d, to + i);
    }
#endif
    for (; i < n; ++i) {
      to[i] += (i % 2 == 0 ? even : odd)[i / 2];
    }
  }
}

void add_rows(size_t rows, size_t n, const float* from, size_t from_row, float* to, size_t to_row) {
  for (size_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(hn::Add(part.load(from + i), part.load(to + i)), to + i);
    });
  }
}

// Computes n neighbouring outputs. kWindow is the number of window elements, or 0 for any number.
template <size_t kWindow>
HWY_INLINE void slide_window(const DirectJob& job, const float* from, const float* weight,
                             float bias, size_t n, float* to) {
  const FloatTag d;
  const size_t window = kWindow != 0 ? kWindow : job.window;
  const size_t* HWY_RESTRICT taps = job.taps;
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    FloatVector sum = hn::Set(d, bias);
    HWY_UNROLL(9)
    for (size_t k = 0; k < window; ++k) {
      sum = hn::MulAdd(hn::Set(d, weight[k]), part.load(from + taps[k] + i), sum);
    }
    part.store(sum, to + i);
  });
}

void direct_forward(const DirectJob& job, const float* padded, const float* weight, float bias,
                    float* y) {
  const auto slide = [&](const float* from, size_t n, float* to) HWY_ATTR {
    if (job.window == 9) {
      slide_window<9>(job, from, weight, bias, n, to);
    } else {
      slide_window<0>(job, from, weight, bias, n, to);
    }
  };
  const bool together = job.row < kShortRow;
  for (size_t z = 0; z < job.rows_z; ++z) {
    if (together) {
      slide(padded + job.padded.row_of(z, 0), job.flat(), job.staged);
    }
    if (together) {
      copy_rows(job.rows_y, job.row, job.staged, job.padded.row, y, job.row);
      y += job.rows_y * job.row;
      continue;
    }
    for (size_t r = 0; r < job.rows_y; ++r, y += job.row) {
      slide(padded + job.padded.row_of(z, r), job.row, y);
    }
  }
}

// Adds to the padded plane.
void direct_back(const DirectJob& job, const float* dy, const float* weight, float* padded) {
  const FloatTag d;
  const auto add = [&](const float* from, size_t n, float* to) HWY_ATTR {
    for (size_t k = 0; k < job.window; ++k) {
      const FloatVector w = hn::Set(d, weight[k]);
      float* at = to + job.taps[k];
      for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
        part.store(hn::MulAdd(w, part.load(from + i), part.load(at + i)), at + i);
      });
    }
  };
  const bool together = job.row < kShortRow && !job.apart;
  if (together) {
    std::fill_n(job.staged, job.flat(), 0.0f);
  }
  for (size_t z = 0; z < job.rows_z; ++z, dy += job.rows_y * job.row) {
    if (together) {
      copy_rows(job.rows_y, job.row, dy, job.row, job.staged, job.padded.row);
      add(job.staged, job.flat(), padded + job.padded.row_of(z, 0));
    }
    for (size_t r = 0; r < job.rows_y && !together; ++r) {
      add(dy + r * job.row, job.row, padded + job.padded.row_of(z, r));
    }
  }
}

// Adds to dweight.
void direct_weights(const DirectJob& job, const float* padded, const float* dy, float* dweight) {
  const auto product = [](size_t n, const float* a, const float* b) HWY_ATTR {
    return sum_vectors(n, [=](size_t i, auto part)
                              HWY_ATTR { return hn::Mul(part.load(a + i), part.load(b + i)); });
  };
  const bool together = !job.apart;
  if (together) {
    std::fill_n(job.staged, job.flat(), 0.0f);
  }
  for (size_t z = 0; z < job.rows_z; ++z, dy += job.rows_y * job.row) {
    if (together) {
      copy_rows(job.rows_y, job.row, dy, job.row, job.staged, job.padded.row);
    }
    for (size_t k = 0; k < job.window; ++k) {
      const float* from = padded + job.taps[k];
      if (together) {
        dweight[k] += product(job.flat(), from + job.padded.row_of(z, 0), job.staged);
      }
      for (size_t r = 0; r < job.rows_y && !together; ++r) {
        dweight[k] += product(job.row, from + job.padded.row_of(z, r), dy + r * job.row);
      }
    }
  }
}

// Adds the optional `bias` of each row.
void copy_pieces(const Pieces& p, const float* from, const float* bias, float* to) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const PartialVector few(HWY_MIN(p.n, lanes));
  for (size_t r = 0; r < p.rows; ++r, from += p.from_row, to += p.to_row) {
    const FloatVector add = bias != nullptr ? hn::Set(d, bias[r]) : hn::Zero(d);
    const float* in = from;
    float* out = to;
    for (size_t s = 0; s < p.pieces; ++s, in += p.from_piece, out += p.to_piece) {
      if (p.n < lanes) {
        few.store(hn::Add(few.load(in), add), out);
        continue;
      }
      for (size_t i = 0; i + lanes <= p.n; i += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, in + i), add), d, out + i);
      }
      // The last vector overlaps the previous vector.
      hn::StoreU(hn::Add(hn::LoadU(d, in + p.n - lanes), add), d, out + p.n - lanes);
    }
  }
}

// Rows [begin, end) of `to` [rows, columns], the transpose of `from` [columns, rows].
void turn_rows(size_t begin, size_t end, size_t rows, size_t columns, const float* from,
               float* to) {
  transpose(from + begin, rows, columns, end - begin, to + begin * columns, columns, columns);
}

void add_run(size_t n, const float* from, float* to) {
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    part.store(hn::Add(part.load(from + i), part.load(to + i)), to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::detail::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

HWY_EXPORT(copy_rows);
HWY_EXPORT(take_strided);
HWY_EXPORT(part_rows);
HWY_EXPORT(join_rows);
HWY_EXPORT(add_rows);
HWY_EXPORT(direct_forward);
HWY_EXPORT(direct_back);
HWY_EXPORT(direct_weights);
HWY_EXPORT(copy_pieces);
HWY_EXPORT(turn_rows);
HWY_EXPORT(add_run);

// Number of columns that make a product efficient, and number of floats that stay in the cache.
constexpr size_t kColumnsWanted = 512;
// With at least this number of columns, a sample is read in place.
constexpr size_t kColumnsOfOne = 96;
constexpr size_t kColumnFloats = size_t{1} << 20;
constexpr size_t kTasksPerThread = 16;

constexpr size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

// Groups with a single input channel need no matrix products.
bool is_direct(const Convolution& c) { return c.inputs == 1 && c.groups > 1; }

// Every output depends only on the element at its position.
bool is_pointwise(const Convolution& c) {
  return std::ranges::all_of(c.windows.axis, [](const WindowAxis& a) {
    return a.window == 1 && a.stride == 1 && a.pad == 0 && a.in == a.out;
  });
}

// With so few columns, products are computed as sums along the channels, with one row per output.
constexpr size_t kFewColumns = 12;
bool has_few_columns(const Convolution& c) {
  return is_pointwise(c) && c.batch == 1 && c.windows.outputs() > 0 &&
         to_size(c.windows.outputs()) <= kFewColumns;
}

// The matrix products of a convolution: the columns of several samples, or of a part of the outputs
// of one sample.
struct Columns {
  explicit Columns(const Convolution& c)
      : depth(to_size(c.inputs * c.windows.window())),
        outputs(to_size(c.windows.outputs())),
        pointwise(is_pointwise(c)) {
    const size_t each = std::max<size_t>(outputs, 1);
    const size_t most = pointwise && outputs >= kColumnsOfOne ? 1 : kColumnsWanted / each;
    samples = std::clamp<size_t>(most, 1, std::max<size_t>(to_size(c.batch), 1));
    const size_t fit = std::max<size_t>(kColumnFloats / std::max<size_t>(depth, 1), 64) / 64 * 64;
    length = samples > 1 || pointwise ? outputs : std::min(outputs, fit);
  }
  size_t most() const { return samples * length; }
  bool lies_in_place() const { return pointwise && samples == 1; }

  size_t depth;    // number of rows: window elements times channels
  size_t outputs;  // per sample
  bool pointwise;
  size_t samples;  // per product
  size_t length;   // outputs per sample and product
};

// Columns [first, first + length) of samples [sample, sample + samples).
struct Part {
  size_t sample, samples, first, length;
  size_t columns() const { return samples * length; }
};

template <class F>
void for_parts(const Columns& columns, size_t batch, F&& f) {
  for (size_t n = 0; n < batch; n += columns.samples) {
    const size_t samples = std::min(columns.samples, batch - n);
    for (size_t o = 0; o < columns.outputs; o += columns.length) {
      f(Part{n, samples, o, std::min(columns.length, columns.outputs - o)});
    }
  }
}

// The outputs of a row whose window element is inside the input: [begin, end).
struct Run {
  int64_t begin, end;
};
Run inside(const WindowAxis& a, int64_t offset) {  // offset = k * dilation - pad
  const int64_t begin = offset >= 0 ? 0 : (-offset + a.stride - 1) / a.stride;
  const int64_t end = a.in - 1 - offset < 0 ? 0 : (a.in - 1 - offset) / a.stride + 1;
  return {std::min(begin, a.out), std::clamp(end, std::min(begin, a.out), a.out)};
}

// Calls f(column, outputs, from, zeros before, elements) for parts of the rows of outputs [first,
// first + length) and element k of the window. `from` is the input position of the first existing
// element, or -1 if no element exists.
template <class F>
void for_runs(const Windows& w, size_t k, const Part& part, F&& f) {
  const auto& [az, ay, ax] = w.axis;
  const auto at = static_cast<int64_t>(k);
  const int64_t x_offset = at % ax.window * ax.dilation - ax.pad;
  const int64_t y_offset = at / ax.window % ay.window * ay.dilation - ay.pad;
  const int64_t z_offset = at / (ax.window * ay.window) * az.dilation - az.pad;
  const Run whole = inside(ax, x_offset);
  for (size_t o = part.first; o < part.first + part.length;) {
    const auto row = static_cast<int64_t>(o) / ax.out;
    const auto begin = static_cast<int64_t>(o) % ax.out;
    const int64_t length =
        std::min(ax.out - begin, static_cast<int64_t>(part.first + part.length - o));
    const int64_t y = row % ay.out * ay.stride + y_offset;
    const int64_t z = row / ay.out * az.stride + z_offset;
    const int64_t lo = std::clamp(whole.begin, begin, begin + length);
    const int64_t hi = std::clamp(whole.end, lo, begin + length);
    const bool there = y >= 0 && y < ay.in && z >= 0 && z < az.in && lo < hi;
    f(o - part.first, to_size(length),
      there ? (z * ay.in + y) * ax.in + lo * ax.stride + x_offset : -1, to_size(lo - begin),
      to_size(hi - lo));
    o += to_size(length);
  }
}

// Adds the columns to the input elements from which they were copied.
void add_columns(Threads& threads, const Convolution& c, const Part& part, const float* columns,
                 size_t group, float* dx) {
  const Windows& w = c.windows;
  const size_t plane = to_size(w.inputs()), window = to_size(w.window());
  const size_t stride = to_size(w.axis[2].stride), inputs = to_size(c.inputs);
  threads.parallel_for(part.samples * inputs, [&](size_t task, size_t) {
    const size_t s = task / inputs, i = task % inputs;
    float* to = dx + (((part.sample + s) * to_size(c.groups) + group) * inputs + i) * plane;
    for (size_t k = 0; k < window; ++k) {
      const float* row = columns + (i * window + k) * part.columns() + s * part.length;
      for_runs(w, k, part, [&](size_t at, size_t, int64_t first, size_t zeros, size_t there) {
        if (first < 0) {
          return;
        }
        const float* piece = row + at + zeros;
        float* out = to + first;
        if (stride == 1) {
          HWY_DYNAMIC_DISPATCH(add_run)(there, piece, out);
        } else {
          for (size_t j = 0; j < there; ++j) {
            out[j * stride] += piece[j];
          }
        }
      });
    }
  });
}

// Calls f(first channel, channels) in one task per group of channels.
template <class F>
void for_channels(Threads& threads, size_t channels, F&& f) {
  constexpr size_t kUnit = 16;
  threads.parallel_for((channels + kUnit - 1) / kUnit, [&](size_t task, size_t) {
    f(task * kUnit, std::min(kUnit, channels - task * kUnit));
  });
}

// Gathers the channels of a group from several samples into one matrix [channels, samples *
// length]; the reverse adds a bias.
void gather_samples(Threads& threads, const Convolution& c, size_t channels, const Part& part,
                    const float* x, size_t group, float* to) {
  const size_t sample = to_size(c.groups) * channels * part.length;
  const float* const from = x + part.sample * sample + group * channels * part.length;
  for_channels(threads, channels, [&](size_t first, size_t some) {
    HWY_DYNAMIC_DISPATCH(copy_pieces)
    ({some, part.samples, part.length, part.length, sample, part.columns(), part.length},
     from + first * part.length, nullptr, to + first * part.columns());
  });
}
void scatter_samples(Threads& threads, const Convolution& c, size_t channels, const Part& part,
                     const float* from, size_t group, const float* bias, float* y) {
  const size_t sample = to_size(c.groups) * channels * part.length;
  float* const to = y + part.sample * sample + group * channels * part.length;
  for_channels(threads, channels, [&](size_t first, size_t some) {
    HWY_DYNAMIC_DISPATCH(copy_pieces)
    ({some, part.samples, part.length, part.columns(), part.length, part.length, sample},
     from + first * part.columns(), bias != nullptr ? bias + group * channels + first : nullptr,
     to + first * part.length);
  });
}

// Row r of the columns: element r % window of channel r / window.
void fill_columns(Threads& threads, const Convolution& c, const Columns& columns, const Part& part,
                  const float* x, size_t group, float* to) {
  if (columns.pointwise) {
    gather_samples(threads, c, columns.depth, part, x, group, to);
    return;
  }
  const Windows& w = c.windows;
  const size_t plane = to_size(w.inputs()), window = to_size(w.window());
  const size_t stride = to_size(w.axis[2].stride);
  threads.parallel_for(columns.depth, [&](size_t r, size_t) {
    for (size_t s = 0; s < part.samples; ++s) {
      const size_t channel =
          ((part.sample + s) * to_size(c.groups) + group) * to_size(c.inputs) + r / window;
      const float* from = x + channel * plane;
      float* row = to + r * part.columns() + s * part.length;
      for_runs(w, r % window, part,
               [&](size_t at, size_t length, int64_t first, size_t zeros, size_t there) {
                 float* piece = row + at;
                 if (first < 0) {
                   std::fill_n(piece, length, 0.0f);
                   return;
                 }
                 std::fill_n(piece, zeros, 0.0f);
                 const float* in = from + first;
                 if (stride == 1) {
                   std::memcpy(piece + zeros, in, there * sizeof(float));
                 } else {
                   HWY_DYNAMIC_DISPATCH(take_strided)(there, stride, in, piece + zeros);
                 }
                 std::fill(piece + zeros + there, piece + length, 0.0f);
               });
    }
  });
}

// Fills planes of `plane` elements with the bias of their channel, or with 0.
void fill_planes(Threads& threads, size_t planes, size_t channels, size_t plane, const float* bias,
                 float* y) {
  const size_t unit = std::max<size_t>(1, 16384 / std::max<size_t>(plane, 1));
  threads.parallel_for((planes + unit - 1) / unit, [&](size_t task, size_t) {
    for (size_t p = task * unit; p < std::min(planes, (task + 1) * unit); ++p) {
      std::fill_n(y + p * plane, plane, bias != nullptr ? bias[p % channels] : 0.0f);
    }
  });
}

GemmShape product(GemmLayout layout, size_t m, size_t n, size_t k, size_t lda, size_t ldb,
                  size_t ldc) {
  return {layout, m, n, k, lda, ldb, ldc};
}

// If true, dweight is summed as [depth, outputs] and transposed at the end. gemm transposes the
// rows of its second factor, which is dy in this case. Transposing dweight takes about as long per
// element as five of these elements.
bool sums_turned(const Convolution& c, const Columns& columns) {
  const size_t outputs = to_size(c.outputs), terms = to_size(c.batch) * columns.outputs;
  return columns.depth >= 3 * outputs &&
         (columns.depth - outputs) * terms > 5 * columns.depth * outputs;
}

// Layout of the scratch memory of a product: columns, gathered samples, transposed dweight, scratch
// of gemm.
struct Scratch {
  static size_t column_floats(const Columns& of) {
    return of.lies_in_place() ? 0 : aligned(of.depth * of.most());
  }
  static size_t sample_floats(const Convolution& c, const Columns& of) {
    return of.samples > 1 ? aligned(to_size(c.outputs) * of.most()) : 0;
  }
  static size_t turned_floats(const Convolution& c, const Columns& of) {
    return sums_turned(c, of) ? aligned(to_size(c.outputs) * of.depth) : 0;
  }
  Scratch(const Convolution& c, const Columns& of, void* scratch)
      : columns(static_cast<float*>(scratch)),
        samples(columns + column_floats(of)),
        turned(samples + sample_floats(c, of)),
        gemm(turned + turned_floats(c, of)) {}
  float* columns;
  float* samples;
  float* turned;
  float* gemm;
};

// Transposed rows of x, rows of y before their transposition, then the scratch of gemm.
size_t few_floats(const Convolution& c) {
  return aligned(to_size(c.windows.outputs() * (c.inputs + c.outputs)));
}
// Up to this number of rows, gemm sums along rows.
constexpr size_t kRowsSummedAlong = 6;
GemmShape few_product(const Convolution& c, size_t rows) {
  const size_t m = to_size(c.outputs), k = to_size(c.inputs);
  return product(GemmLayout::nt, rows, m, k, k, k, m);
}

uint64_t column_scratch_bytes(const Convolution& c, const Threads& threads) {
  const Columns columns(c);
  const size_t m = to_size(c.outputs), n = columns.most(), k = columns.depth;
  const uint64_t products =
      std::max({gemm_scratch_bytes(product(GemmLayout::nn, m, n, k, k, n, n), threads),
                gemm_scratch_bytes(product(GemmLayout::tn, k, n, m, k, n, n), threads),
                gemm_scratch_bytes(product(GemmLayout::nt, m, k, n, n, n, k), threads),
                gemm_scratch_bytes(product(GemmLayout::nt, k, m, n, n, n, m), threads)});
  const size_t floats = Scratch::column_floats(columns) + Scratch::sample_floats(c, columns) +
                        Scratch::turned_floats(c, columns);
  const uint64_t few = has_few_columns(c)
                           ? few_floats(c) * sizeof(float) +
                                 gemm_scratch_bytes(few_product(c, kRowsSummedAlong), threads)
                           : 0;
  return std::max(floats * sizeof(float) + products, few);
}

// The gradient dx of a convolution with stride 1 is a convolution of dy with the flipped window.
bool turns_around(const Convolution& c) {
  return c.outputs == 1 && std::ranges::all_of(c.windows.axis, [](const WindowAxis& a) {
           return a.stride == 1 && a.pad < a.reach();
         });
}
Convolution turned_around(Convolution c) {
  for (WindowAxis& a : c.windows.axis) {
    std::swap(a.in, a.out);
    a.pad = a.reach() - 1 - a.pad;
  }
  return c;
}

// Scratch of the direct method: offsets of the taps, then per thread a padded plane and as much
// room for rows.
size_t tap_floats(const Convolution& c) {
  return aligned(to_size(c.windows.window()) * sizeof(size_t) / sizeof(float));
}

struct Direct {
  Direct(const Convolution& c, void* scratch, bool turned = false)
      : padded(c.windows),
        taps(static_cast<size_t*>(scratch)),
        planes(static_cast<float*>(scratch)) {
    const size_t window = to_size(c.windows.window());
    for (size_t k = 0; k < window; ++k) {
      taps[turned ? window - 1 - k : k] = padded.tap(k);
    }
    planes += tap_floats(c);
  }
  DirectJob job(size_t thread) const {
    const Windows& w = padded.windows;
    return {padded,
            taps,
            to_size(w.window()),
            to_size(w.axis[0].out),
            to_size(w.axis[1].out),
            to_size(w.axis[2].out),
            plane(thread) + aligned(padded.floats())};
  }
  float* plane(size_t thread) const { return planes + thread * 2 * aligned(padded.floats()); }

  // Rows of the input that are consecutive in a part of the padded plane.
  template <class Element>
  struct Rows {
    Element* first;
    size_t step;  // from row to row
    size_t count, columns;
    size_t z, y;  // of the padded plane
  };
  // Calls f(Rows) for all rows of the input that the padded plane contains.
  template <class Element, class F>
  void for_rows(Element* x, F&& f) const {
    const auto& axis = padded.windows.axis;
    const auto there = [&](size_t a) {
      return to_size(
          std::clamp<int64_t>(static_cast<int64_t>(padded.extent[a]) - axis[a].pad, 0, axis[a].in));
    };
    const size_t rows = there(1), parts = padded.parts[1], width = to_size(axis[2].in);
    for (size_t z = 0; z < there(0); ++z) {
      for (size_t y = 0; y < std::min(rows, parts); ++y) {
        f(Rows<Element>{x + (z * to_size(axis[1].in) + y) * width, parts * width,
                        (rows - y + parts - 1) / parts, there(2), z + to_size(axis[0].pad),
                        y + to_size(axis[1].pad)});
      }
    }
  }
  // The position of element `column` of the first of these rows.
  template <class Element>
  size_t place(const Rows<Element>& r, size_t column) const {
    return padded.place(r.z, r.y, column + to_size(padded.windows.axis[2].pad));
  }
  // The zeros around the plane are already written.
  void pack(const float* x, float* to) const {
    const size_t parts = padded.parts[2], row = padded.row;
    for_rows(x, [&](const Rows<const float>& r) {
      if (parts == 1) {
        HWY_DYNAMIC_DISPATCH(copy_rows)
        (r.count, r.columns, r.first, r.step, to + place(r, 0), row);
      } else if (parts == 2) {
        HWY_DYNAMIC_DISPATCH(part_rows)
        (r.count, r.columns, r.first, r.step, to + place(r, 0), to + place(r, 1), row);
      } else {
        for (size_t i = 0; i < r.count; ++i) {
          for (size_t e = 0; e < r.columns; ++e) {
            to[place(r, e) + i * row] = r.first[i * r.step + e];
          }
        }
      }
    });
  }
  // Adds to dx.
  void unpack(const float* from, float* dx) const {
    const size_t parts = padded.parts[2], row = padded.row;
    for_rows(dx, [&](const Rows<float>& r) {
      if (parts == 1) {
        HWY_DYNAMIC_DISPATCH(add_rows)
        (r.count, r.columns, from + place(r, 0), row, r.first, r.step);
      } else if (parts == 2) {
        HWY_DYNAMIC_DISPATCH(join_rows)
        (r.count, r.columns, from + place(r, 0), from + place(r, 1), row, r.first, r.step);
      } else {
        for (size_t i = 0; i < r.count; ++i) {
          for (size_t e = 0; e < r.columns; ++e) {
            r.first[i * r.step + e] += from[place(r, e) + i * row];
          }
        }
      }
    });
  }

  Padded padded;
  size_t* taps;
  float* planes;
};

// Planes of one group.
struct Group {
  size_t inputs, outputs, window;
};

}  // namespace

bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7F800000;  // of NaN and infinity
  uint32_t found = 0;
  for (const float value : values) {
    found |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1 : 0;
  }
  return found == 0;
}

uint64_t convolution_scratch_bytes(const Convolution& c, const Threads& threads) {
  if (is_direct(c)) {
    const size_t turned = turns_around(c) ? Padded(turned_around(c).windows).floats() : 0;
    const size_t plane = aligned(std::max(Padded(c.windows).floats(), turned));
    const size_t in_runs = slides_in_runs(c) ? run_scratch_floats(c, threads) : 0;
    return std::max(tap_floats(c) + threads.count() * 2 * plane, in_runs) * sizeof(float);
  }
  return column_scratch_bytes(c, threads);
}

namespace {

bool has_finite_weights(const Convolution& c, const float* weight) {
  return all_finite({weight, to_size(c.groups * c.windows.window())});
}

Group group_of(const Convolution& c) {
  return {to_size(c.windows.inputs()), to_size(c.windows.outputs()), to_size(c.windows.window())};
}

void convolve_direct(Threads& threads, const Convolution& c, const float* x, const float* weight,
                     const float* bias, float* y, void* scratch, bool turned = false) {
  const Direct direct(c, scratch, turned);
  const Group size = group_of(c);
  const size_t outputs = to_size(c.outputs), planes = to_size(c.batch * c.groups);
  // A task processes several planes, because the zeros around them can stay.
  const size_t unit = std::max<size_t>(1, planes / (threads.count() * kTasksPerThread));
  threads.parallel_for((planes + unit - 1) / unit, [&](size_t task, size_t thread) {
    float* plane = direct.plane(thread);
    std::fill_n(plane, direct.padded.floats(), 0.0f);  // once per task
    for (size_t p = task * unit; p < std::min(planes, (task + 1) * unit); ++p) {
      direct.pack(x + p * size.inputs, plane);
      for (size_t m = 0; m < outputs; ++m) {
        const size_t channel = p % to_size(c.groups) * outputs + m;
        HWY_DYNAMIC_DISPATCH(direct_forward)
        (direct.job(thread), plane, weight + channel * size.window,
         bias != nullptr ? bias[channel] : 0.0f, y + (p * outputs + m) * size.outputs);
      }
    }
  });
}

void convolve_back_direct(Threads& threads, const Convolution& c, const float* dy,
                          const float* weight, float* dx, void* scratch) {
  const Direct direct(c, scratch);
  const Group size = group_of(c);
  const size_t outputs = to_size(c.outputs);
  threads.parallel_for(to_size(c.batch * c.groups), [&](size_t task, size_t thread) {
    float* plane = direct.plane(thread);
    std::fill_n(plane, direct.padded.floats(), 0.0f);
    for (size_t m = 0; m < outputs; ++m) {
      const size_t channel = task % to_size(c.groups) * outputs + m;
      const std::span<const float> kernel(weight + channel * size.window, size.window);
      // The gap between two rows of y counts as 0, so it must not be multiplied by a non-finite
      // weight.
      DirectJob job = direct.job(thread);
      job.apart = !all_finite(kernel);
      HWY_DYNAMIC_DISPATCH(direct_back)
      (job, dy + (task * outputs + m) * size.outputs, kernel.data(), plane);
    }
    direct.unpack(plane, dx + task * size.inputs);
  });
}

void convolve_weights_direct(Threads& threads, const Convolution& c, const float* x,
                             const float* dy, float* dweight, void* scratch) {
  const Direct direct(c, scratch);
  const Group size = group_of(c);
  const size_t outputs = to_size(c.outputs), groups = to_size(c.groups);
  threads.parallel_for(groups, [&](size_t g, size_t thread) {
    float* plane = direct.plane(thread);
    DirectJob job = direct.job(thread);
    const std::span<float> made(dweight + g * outputs * size.window, outputs * size.window);
    std::fill_n(plane, direct.padded.floats(), 0.0f);
    // The gap between two rows of y counts as 0, so it must not be multiplied by a non-finite x.
    for (const bool apart : {false, true}) {
      job.apart = apart;
      std::ranges::fill(made, 0.0f);
      for (size_t n = 0; n < to_size(c.batch); ++n) {
        direct.pack(x + (n * groups + g) * size.inputs, plane);
        for (size_t m = 0; m < outputs; ++m) {
          HWY_DYNAMIC_DISPATCH(direct_weights)
          (job, plane, dy + ((n * groups + g) * outputs + m) * size.outputs,
           made.data() + m * size.window);
        }
      }
      if (all_finite(made)) {
        break;
      }
    }
  });
}

void convolve_few(Threads& threads, const Convolution& c, const float* x, const float* weight,
                  const float* bias, float* y, void* scratch) {
  const size_t n = to_size(c.windows.outputs()), m = to_size(c.outputs), k = to_size(c.inputs);
  float* const turned = static_cast<float*>(scratch);
  float* const sums = turned + n * k;
  float* const rest = turned + few_floats(c);
  for (size_t g = 0; g < to_size(c.groups); ++g, x += k * n, weight += m * k, y += m * n) {
    for (size_t i = 0; i < k; ++i) {
      for (size_t o = 0; o < n; ++o) {
        turned[o * k + i] = x[i * n + o];
      }
    }
    for (size_t o = 0; o < n; o += kRowsSummedAlong) {
      GemmOptions options;
      options.bias = bias != nullptr ? bias + g * m : nullptr;
      gemm(threads, few_product(c, std::min(n - o, kRowsSummedAlong)), turned + o * k, weight,
           sums + o * m, options, rest);
    }
    for (size_t i = 0; i < m; ++i) {
      for (size_t o = 0; o < n; ++o) {
        y[i * n + o] = sums[o * m + i];
      }
    }
  }
}

}  // namespace

void convolve(Threads& threads, const Convolution& c, const float* x, const float* weight,
              const float* bias, float* y, void* scratch) {
  if (is_direct(c)) {
    if (slides_in_runs(c) && has_finite_weights(c, weight)) {
      slide_runs(threads, c, x, weight, bias, y, static_cast<float*>(scratch));
    } else {
      convolve_direct(threads, c, x, weight, bias, y, scratch);
    }
    return;
  }
  if (has_few_columns(c)) {
    convolve_few(threads, c, x, weight, bias, y, scratch);
    return;
  }
  const Columns columns(c);
  const Scratch s(c, columns, scratch);
  const Group size = group_of(c);
  const size_t m = to_size(c.outputs), groups = to_size(c.groups), k = columns.depth;
  const bool prefilled = columns.samples == 1 && bias != nullptr;
  if (prefilled) {
    fill_planes(threads, to_size(c.batch) * groups * m, groups * m, size.outputs, bias, y);
  }
  for_parts(columns, to_size(c.batch), [&](const Part& part) {
    for (size_t g = 0; g < groups; ++g) {
      const size_t sample = part.sample * groups + g;
      const float* b = x + sample * to_size(c.inputs) * size.inputs;
      if (!columns.lies_in_place()) {
        fill_columns(threads, c, columns, part, x, g, s.columns);
        b = s.columns;
      }
      const size_t n = part.columns();
      const bool straight = columns.samples == 1;
      GemmOptions options;
      options.accumulate = prefilled;
      gemm(threads, product(GemmLayout::nn, m, n, k, k, n, straight ? size.outputs : n),
           weight + g * m * k, b, straight ? y + sample * m * size.outputs + part.first : s.samples,
           options, s.gemm);
      if (!straight) {
        scatter_samples(threads, c, m, part, s.samples, g, bias, y);
      }
    }
  });
}

void convolve_back(Threads& threads, const Convolution& c, const float* dy, const float* weight,
                   const float* bias, float* dx, void* scratch) {
  // The zeros around dy are not terms of dx.
  if (is_direct(c) && slides_in_runs(c) && has_finite_weights(c, weight)) {
    slide_runs_back(threads, c, dy, weight, bias, dx, static_cast<float*>(scratch));
    return;
  }
  if (is_direct(c) && turns_around(c) && has_finite_weights(c, weight)) {
    convolve_direct(threads, turned_around(c), dy, weight, bias, dx, scratch, true);
    return;
  }
  const Columns columns(c);
  const Group size = group_of(c);
  const size_t m = to_size(c.outputs), groups = to_size(c.groups), k = columns.depth;
  const size_t channels = groups * to_size(c.inputs);
  const bool in_place = !is_direct(c) && columns.lies_in_place();
  // Each element of dx is a single sum, so several samples can be processed side by side.
  const bool side_by_side = !is_direct(c) && columns.pointwise && !in_place;
  if (!side_by_side && (!in_place || bias != nullptr)) {
    fill_planes(threads, to_size(c.batch) * channels, channels, size.inputs, bias, dx);
  }
  if (is_direct(c)) {
    convolve_back_direct(threads, c, dy, weight, dx, scratch);
    return;
  }
  const Scratch s(c, columns, scratch);
  for_parts(columns, to_size(c.batch), [&](const Part& part) {
    for (size_t g = 0; g < groups; ++g) {
      const size_t sample = part.sample * groups + g, n = part.columns();
      const bool straight = columns.samples == 1;
      const float* b = dy + sample * m * size.outputs + part.first;
      if (!straight) {
        gather_samples(threads, c, m, part, dy, g, s.samples);
        b = s.samples;
      }
      GemmOptions options;
      options.accumulate = in_place && bias != nullptr;
      gemm(threads, product(GemmLayout::tn, k, n, m, k, straight ? size.outputs : n, n),
           weight + g * m * k, b,
           in_place ? dx + sample * to_size(c.inputs) * size.inputs : s.columns, options, s.gemm);
      if (side_by_side) {
        scatter_samples(threads, c, to_size(c.inputs), part, s.columns, g, bias, dx);
      } else if (!in_place) {
        add_columns(threads, c, part, s.columns, g, dx);
      }
    }
  });
}

namespace {

// Transposes `sums` [k, m] to [m, k], in place.
void turn_back(Threads& threads, size_t m, size_t k, float* sums, float* scratch) {
  constexpr size_t kRows = 16;
  std::memcpy(scratch, sums, m * k * sizeof(float));
  threads.parallel_for((m + kRows - 1) / kRows, [&](size_t task, size_t) {
    HWY_DYNAMIC_DISPATCH(turn_rows)
    (task * kRows, std::min(m, (task + 1) * kRows), m, k, scratch, sums);
  });
}

}  // namespace

void convolve_weights(Threads& threads, const Convolution& c, const float* x, const float* dy,
                      float* dweight, void* scratch) {
  if (is_direct(c)) {
    if (sums_in_runs(c)) {
      sum_runs(threads, c, x, dy, dweight, static_cast<float*>(scratch));
      if (all_finite({dweight, to_size(c.groups) * 9})) {
        return;
      }
    }
    convolve_weights_direct(threads, c, x, dy, dweight, scratch);
    return;
  }
  const Columns columns(c);
  const Scratch s(c, columns, scratch);
  const Group size = group_of(c);
  const size_t m = to_size(c.outputs), groups = to_size(c.groups), k = columns.depth;
  if (c.batch == 0 || size.outputs == 0) {
    std::fill_n(dweight, groups * m * k, 0.0f);
  }
  const bool turned = sums_turned(c, columns);
  for_parts(columns, to_size(c.batch), [&](const Part& part) {
    for (size_t g = 0; g < groups; ++g) {
      const size_t sample = part.sample * groups + g, n = part.columns();
      const bool straight = columns.samples == 1;
      const float* a = dy + sample * m * size.outputs + part.first;
      if (!straight) {
        gather_samples(threads, c, m, part, dy, g, s.samples);
        a = s.samples;
      }
      const float* b = x + sample * to_size(c.inputs) * size.inputs;
      if (!columns.lies_in_place()) {
        fill_columns(threads, c, columns, part, x, g, s.columns);
        b = s.columns;
      }
      GemmOptions options;
      options.accumulate = part.sample > 0 || part.first > 0;
      const size_t row = straight ? size.outputs : n;
      float* const sums = dweight + g * m * k;
      if (turned) {
        gemm(threads, product(GemmLayout::nt, k, m, n, n, row, m), b, a, sums, options, s.gemm);
      } else {
        gemm(threads, product(GemmLayout::nt, m, k, n, row, n, k), a, b, sums, options, s.gemm);
      }
    }
  });
  for (size_t g = 0; g < groups && turned; ++g) {
    turn_back(threads, m, k, dweight + g * m * k, s.turned);
  }
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
