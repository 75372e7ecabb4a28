// Window functions, and Fourier transforms as products with known matrices.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

constexpr char kBadLength[] =
    "A transform of {} values is not supported: 1 to 65536, if its matrix is not too large.";

// (a - b cos(2 pi i / n) + third cos(4 pi i / n)) / unit
template <int a, int b, int third, int unit>
Term window(Context& c) {
  const std::vector<int64_t> given = c.integers(0);
  const bool periodic = c.flag("periodic", true);
  const DType dtype = c.dtype("output_datatype", DType::f32);
  require(given.size() == 1 && given[0] >= 0 && given[0] <= kMostComputed,
          "Input size is {}, not one value from 0 to {}.", given, kMostComputed);
  const int64_t n = given[0];
  const auto period = static_cast<double>(periodic ? n : std::max<int64_t>(n - 1, 1));
  return c.m.table(dtype, {n}, [&](int64_t i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / period;
    return (a - b * std::cos(angle) + third * std::cos(2 * angle)) / unit;
  });
}

// The angle of element i of wave k, in turns.
double turns(int64_t i, int64_t k, int64_t length) {
  return static_cast<double>(i * k % length) / static_cast<double>(length);
}

// Transform matrix for a row of `length` real values or complex pairs: [length * parts, bins * 2].
Term basis(Context& c, DType dtype, int64_t length, int64_t parts, int64_t bins, bool inverse) {
  const bool fits = length >= 1 && length <= 65536 && bins <= length &&
                    length * parts * bins * 2 <= kMostComputed;
  support(fits, kBadLength, length);
  const double scale = inverse ? 1 / static_cast<double>(length) : 1;
  return c.m.table(dtype, {length * parts, bins * 2}, [&](int64_t at) {
    const int64_t row = at / (bins * 2), column = at % (bins * 2);
    const double turn = turns(row / parts, column / 2, length);
    const double angle = (inverse ? 2 : -2) * std::numbers::pi * turn;
    // (cos + i sin) (1 or i)
    const bool is_cosine = row % parts == column % 2;
    const double sign = row % parts > column % 2 ? -1 : 1;
    return scale * (is_cosine ? std::cos(angle) : sign * std::sin(angle));
  });
}

// Inverse transform matrix for half of the bins of a real signal, as complex pairs: [bins * 2,
// length]. A bin with a mirror image counts twice.
Term real_basis(Context& c, DType dtype, int64_t length, int64_t bins) {
  support(length >= 1 && length <= 65536 && length * bins * 2 <= kMostComputed, kBadLength, length);
  return c.m.table(dtype, {bins * 2, length}, [&](int64_t at) {
    const int64_t k = at / length / 2;
    const bool twice = k > 0 && 2 * k < length, imaginary = at / length % 2 == 1;
    const double scale = (twice ? 2.0 : 1.0) / static_cast<double>(length);
    const double angle = 2 * std::numbers::pi * turns(at % length, k, length);
    return scale * (imaginary ? -std::sin(angle) : std::cos(angle));
  });
}

Term dft(Context& c) {
  Term x = c.in(0);
  // From operator set 20 on the axis is an input, with another default.
  const int64_t given = c.opset < 20 ? c.integer("axis", 1) : c.has(2) ? c.single(2, "axis") : -2;
  const bool inverse = c.flag("inverse", false);
  const bool onesided = c.flag("onesided", false);
  const int64_t axis = axis_of(given, x.rank());
  const auto before_last = static_cast<int64_t>(x.rank()) - 2;
  const int64_t parts = x.rank() >= 2 ? x.dims.back() : 0;
  require(axis <= before_last && (parts == 1 || parts == 2),
          "{} has no real or complex values along axis {}.", x.dims, axis);
  const bool to_real = onesided && inverse;
  require(!to_real || parts == 2, "{} has no complex values.", x.dims);
  int64_t length = x.dims[axis];
  length = to_real ? 2 * (length - 1) : length;
  if (c.has(1)) {
    const std::vector<int64_t> lengths = c.integers(1);
    support(lengths.size() == 1 && lengths[0] >= 1 && lengths[0] <= 65536,
            "The transform length {} is not supported.", lengths);
    length = lengths[0];
  }
  const int64_t bins = onesided ? length / 2 + 1 : length;
  x = with_length(c, x, axis, to_real ? bins : length);
  const Dims swap = swapped(x.rank(), axis, before_last);
  x = c.m.transpose(x, swap);
  const Term matrix = to_real ? real_basis(c, x.dtype, length, bins)
                              : basis(c, x.dtype, length, parts, bins, inverse);
  const Dims dims = x.dims.with(before_last, to_real ? length : bins).with_last(to_real ? 1 : 2);
  return c.m.transpose(rows_times(c, x, matrix, dims), swap);
}

// A signal without an axis for the parts is real.
Term stft(Context& c) {
  Term x = c.in(0);
  if (x.rank() == 2) {
    x = c.m.reshape(x, {x.dims[0], x.dims[1], 1});
  }
  const std::vector<int64_t> steps = c.integers(1);
  const bool onesided = c.flag("onesided", true);
  const bool legal =
      x.rank() == 3 && (x.dims[2] == 1 || x.dims[2] == 2) && steps.size() == 1 && steps[0] >= 1;
  require(legal, "The signal {} is not [batch, length, 1 or 2], or the step is below 1.", x.dims);
  int64_t length = 0;
  Term weights;
  if (c.has(2)) {
    weights = c.in(2);
    length = weights.elements();
  }
  if (c.has(3)) {
    const std::vector<int64_t> lengths = c.integers(3);
    require(lengths.size() == 1 && (length == 0 || lengths[0] == length),
            "Input frame_length is {}, not one value that equals the length of the "
            "window, if there is a window.",
            lengths);
    length = lengths[0];
  }
  require(length >= 1 && length <= x.dims[1], "A frame of {} does not fit {}.", length, x.dims);
  const int64_t frames = (x.dims[1] - length) / steps[0] + 1;
  support(frames <= kMostComputed / length, "{} frames of {} are too many.", frames, length);
  const Term indices = c.m.table(DType::i32, {frames, length},
                                 [&](int64_t i) { return i / length * steps[0] + i % length; });
  const int64_t parts = x.dims[2];
  const int64_t bins = onesided ? length / 2 + 1 : length;
  Term cut = c.m.gather(x, indices, 1);
  if (c.has(2)) {
    cut = cut * c.m.reshape(weights, {length, 1});
  }
  const Term matrix = basis(c, x.dtype, length, parts, bins, false);
  return rows_times(c, cut, matrix, {x.dims[0], frames, bins, 2});
}

constexpr Lowering kSignalLowerings[] = {
    {"HannWindow", window<1, 1, 0, 2>},
    {"HammingWindow", window<25, 21, 0, 46>},
    {"BlackmanWindow", window<42, 50, 8, 100>},
    {"DFT", dft},
    {"STFT", stft},
};

}  // namespace

std::span<const Lowering> lowerings_of_signal() { return kSignalLowerings; }

}  // namespace bowline::onnx
