// See convolution.h.
#include "compute/convolution.h"

#include <algorithm>
#include <cstring>

#include "compute/convolution_direct.h"
#include "compute/depthwise.h"
#include "compute/gemm.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/convolution.cpp"
#include "hwy/foreach_target.h"
#include "compute/gemm-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_CONVOLUTION_ONCE
#define BOWLINE_CPU_CONVOLUTION_ONCE
namespace bowline::detail::cpu {
namespace {

// Runs of n elements, with separate distances in the source and in the target.
struct Pieces {
  size_t rows, pieces, n;
  size_t from_row, from_piece;
  size_t to_row, to_piece;
};
}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

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

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

// Number of columns that make a product efficient, and number of floats that stay in the cache.
constexpr size_t kColumnsWanted = 512;
// With at least this number of columns, a sample is read in place.
constexpr size_t kColumnsOfOne = 96;
constexpr size_t kColumnFloats = size_t{1} << 20;

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
          BOWLINE_BEST(add_run)(there, piece, out);
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
    BOWLINE_BEST(copy_pieces)
    ({some, part.samples, part.length, part.length, sample, part.columns(), part.length},
     from + first * part.length, nullptr, to + first * part.columns());
  });
}
void scatter_samples(Threads& threads, const Convolution& c, size_t channels, const Part& part,
                     const float* from, size_t group, const float* bias, float* y) {
  const size_t sample = to_size(c.groups) * channels * part.length;
  float* const to = y + part.sample * sample + group * channels * part.length;
  for_channels(threads, channels, [&](size_t first, size_t some) {
    BOWLINE_BEST(copy_pieces)
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
                   BOWLINE_BEST(take_strided)(there, stride, in, piece + zeros);
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

}  // namespace

uint64_t convolution_scratch_bytes(const Convolution& c, const Threads& threads) {
  if (is_direct(c)) {
    const size_t in_runs = slides_in_runs(c) ? run_scratch_floats(c, threads) : 0;
    return std::max(direct_scratch_floats(c, threads), in_runs) * sizeof(float);
  }
  return column_scratch_bytes(c, threads);
}

namespace {

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
  const Group size(c);
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
  const Group size(c);
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
    BOWLINE_BEST(turn_rows)(task * kRows, std::min(m, (task + 1) * kRows), m, k, scratch, sums);
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
  const Group size(c);
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
