// Resize and Upsample: each axis by itself. The nearest element is a Gather with known indices, a weighted sum of neighbours the product
// with a known matrix.
//
// Source  ONNX operators, Resize; its reference, onnx/backend/test/case/node/resize.py.
#include <algorithm>
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

struct Rules {
  std::string mode = "nearest";
  std::string coordinates = "asymmetric";
  std::string nearest = "floor";
  double a = -0.75;  // of the cubic
  bool exclude_outside = false;
  double extrapolation = 0;
  std::vector<double> roi;
};

struct Axis {
  int64_t in = 0, out = 0;
  double scale = 1;
  double roi_begin = 0, roi_end = 1;
};

// The place in the input that element i of the output is taken from.
double place_of(const Rules& r, const Axis& axis, int64_t i) {
  const auto x = static_cast<double>(i);
  const auto in = static_cast<double>(axis.in);
  const double width = axis.scale * in;  // of the output before it was rounded
  if (r.coordinates == "align_corners") {
    return width == 1 ? 0 : x * (in - 1) / (width - 1);
  }
  if (r.coordinates == "asymmetric") {
    return x / axis.scale;
  }
  if (r.coordinates == "tf_half_pixel_for_nn") {
    return (x + 0.5) / axis.scale;
  }
  if (r.coordinates == "tf_crop_and_resize") {
    const double part = axis.roi_end - axis.roi_begin;
    const double inside = width == 1 ? part * (in - 1) / 2 : x * part * (in - 1) / (width - 1);
    return inside + axis.roi_begin * (in - 1);
  }
  if (r.coordinates == "pytorch_half_pixel" && width == 1) {
    return -0.5;
  }
  return (x + 0.5) / axis.scale - 0.5;
}

int64_t nearest_to(const Rules& r, double place, int64_t in) {
  double i = std::floor(place);
  if (r.nearest == "ceil") {
    i = std::ceil(place);
  } else if (r.nearest == "round_prefer_floor") {
    i = std::ceil(place - 0.5);
  } else if (r.nearest == "round_prefer_ceil") {
    i = std::floor(place + 0.5);
  }
  return static_cast<int64_t>(std::clamp(i, 0.0, static_cast<double>(in - 1)));
}

// Of the cubic convolution at a distance: Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
double cubic(double distance, double a) {
  const double t = std::abs(distance);
  if (t <= 1) {
    return ((a + 2) * t - (a + 3)) * t * t + 1;
  }
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

// [in, out]: column i has the weights of element i of the output.
std::vector<double> weights_of(const Rules& r, const Axis& axis) {
  std::vector<double> out(static_cast<size_t>(axis.in * axis.out));
  for (int64_t i = 0; i < axis.out; ++i) {
    const double place = place_of(r, axis, i);
    const auto below = static_cast<int64_t>(std::floor(place));
    const int64_t reach = r.mode == "cubic" ? 2 : 1;
    double sum = 0;
    for (int64_t j = below - reach + 1; j <= below + reach; ++j) {
      const double distance = place - static_cast<double>(j);
      const double weight = r.mode == "cubic" ? cubic(distance, r.a) : 1 - std::abs(distance);
      const bool outside = j < 0 || j >= axis.in;
      if (outside && r.exclude_outside) {
        continue;
      }
      sum += weight;
      const int64_t at = std::clamp<int64_t>(j, 0, axis.in - 1);
      out[static_cast<size_t>(at * axis.out + i)] += weight;
    }
    for (int64_t j = 0; j < axis.in && r.exclude_outside; ++j) {
      out[static_cast<size_t>(j * axis.out + i)] /= sum;
    }
  }
  return out;
}

Result<Term> resized(Context& c, const Rules& r, const Term& x, int64_t a, const Axis& axis) {
  BOWLINE_REQUIRE_CODE(axis.in >= 1 && axis.out >= 0, Code::bad_file,
                       "Axis {} of {} becomes {} elements.", a, shape_text(x.dims), axis.out);
  BOWLINE_REQUIRE_CODE(
      axis.in <= kMostComputed && axis.out <= kMostComputed && axis.in * axis.out <= kMostComputed,
      Code::unsupported, "An axis from {} to {} elements is too long.", axis.in, axis.out);
  if (r.mode == "nearest") {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < axis.out; ++i) {
      indices.push_back(nearest_to(r, place_of(r, axis, i), axis.in));
    }
    return c.m.gather(x, c.m.integers(DType::i32, {axis.out}, indices), a);
  }
  std::vector<int64_t> last = all_axes(x.rank());
  std::swap(last[static_cast<size_t>(a)], last.back());
  const Term matrix = c.m.constant(Numbers::of(x.dtype, {axis.in, axis.out}, weights_of(r, axis)));
  const Term moved = c.m.transpose(x, last);
  const Term rows = c.m.reshape(moved, {x.elements() / axis.in, axis.in});
  Dims dims = moved.dims;
  dims.back() = axis.out;
  return c.m.transpose(c.m.reshape(c.m.matmul(rows, matrix), dims), last);
}

// What is taken from outside of the input has a value of its own.
Term extrapolated(Context& c, const Rules& r, const Term& y, int64_t a, const Axis& axis) {
  std::vector<int64_t> outside;
  for (int64_t i = 0; i < axis.out; ++i) {
    const double place = place_of(r, axis, i);
    outside.push_back(place < 0 || place > static_cast<double>(axis.in - 1) ? 1 : 0);
  }
  if (std::ranges::count(outside, 1) == 0) {
    return y;
  }
  Dims dims(y.rank(), 1);
  dims[static_cast<size_t>(a)] = axis.out;
  const Term mask = c.m.integers(DType::boolean, dims, outside);
  return c.m.where(mask, c.m.scalar(y.dtype, r.extrapolation), y);
}

// `scales` and `sizes`: of every axis; one of them is empty.
Status resize_all(Context& c, const Rules& r, const std::vector<double>& scales,
                  const std::vector<int64_t>& sizes) {
  BOWLINE_ASSIGN(Term x, c.in(0));
  const size_t rank = x.rank();
  BOWLINE_REQUIRE_CODE(scales.size() == rank || sizes.size() == rank, Code::bad_file,
                       "{} scales and {} sizes do not fit {}.", scales.size(), sizes.size(),
                       shape_text(x.dims));
  const bool crops = r.coordinates == "tf_crop_and_resize";
  BOWLINE_REQUIRE_CODE(!crops || r.roi.size() == 2 * rank, Code::bad_file,
                       "A region of {} numbers does not fit {}.", r.roi.size(), shape_text(x.dims));
  const bool near = std::ranges::all_of(r.roi, [](double v) { return std::abs(v) <= 1e6; });
  BOWLINE_REQUIRE_CODE(near, Code::bad_file, "Its region lies far outside.");
  BOWLINE_TRY(require_small("Sizes", sizes));
  const bool known = r.mode == "nearest" || r.mode == "linear" || r.mode == "cubic";
  BOWLINE_REQUIRE_CODE(known, Code::unsupported, "Mode \"{}\" is not known.", escaped(r.mode));
  std::vector<Axis> axes;
  Dims from = x.dims;
  for (size_t a = 0; a < rank; ++a) {
    Axis axis;
    axis.in = from[a];
    axis.scale =
        sizes.empty() ? scales[a] : static_cast<double>(sizes[a]) / static_cast<double>(axis.in);
    const double width = sizes.empty() ? std::floor(axis.scale * static_cast<double>(axis.in))
                                       : static_cast<double>(sizes[a]);
    BOWLINE_REQUIRE_CODE(axis.scale > 0 && width <= INT32_MAX, Code::bad_file,
                         "Axis {} of {} is scaled by {}.", a, shape_text(x.dims), axis.scale);
    axis.out = static_cast<int64_t>(width);
    if (crops) {
      axis.roi_begin = r.roi[a];
      axis.roi_end = r.roi[rank + a];
    }
    axes.push_back(axis);
  }
  const auto stays = [&](const Axis& axis) {
    return axis.scale == 1 && axis.roi_begin == 0 && axis.roi_end == 1;
  };
  for (size_t a = 0; a < rank; ++a) {
    if (!stays(axes[a])) {
      BOWLINE_ASSIGN(x, resized(c, r, x, static_cast<int64_t>(a), axes[a]));
      BOWLINE_TRY(Status(c.m.status()));
    }
  }
  for (size_t a = 0; a < rank && crops; ++a) {
    x = extrapolated(c, r, x, static_cast<int64_t>(a), axes[a]);
  }
  c.out(0, x);
  return {};
}

Result<std::vector<double>> optional_reals(Context& c, size_t i) {
  if (!c.has(i)) {
    return std::vector<double>();
  }
  BOWLINE_ASSIGN(const Numbers n, c.numbers(i));
  return n.reals();
}

Status upsample(Context& c) {
  Rules r;
  BOWLINE_ASSIGN(r.mode, c.text("mode", "nearest"));
  BOWLINE_ASSIGN(std::vector<double> scales,
                 c.opset < 9 ? c.reals("scales") : optional_reals(c, 1));
  return resize_all(c, r, scales, {});
}

Status resize(Context& c) {
  if (c.opset < 11) {
    return upsample(c);
  }
  Rules r;
  BOWLINE_ASSIGN(r.mode, c.text("mode", "nearest"));
  BOWLINE_ASSIGN(r.coordinates, c.text("coordinate_transformation_mode", "half_pixel"));
  BOWLINE_ASSIGN(r.nearest, c.text("nearest_mode", "round_prefer_floor"));
  BOWLINE_ASSIGN(r.a, c.real("cubic_coeff_a", -0.75));
  BOWLINE_ASSIGN(const int64_t exclude, c.integer("exclude_outside", 0));
  r.exclude_outside = exclude != 0;
  BOWLINE_ASSIGN(r.extrapolation, c.real("extrapolation_value", 0));
  BOWLINE_ASSIGN(r.roi, optional_reals(c, 1));
  BOWLINE_ASSIGN(const std::vector<double> scales, optional_reals(c, 2));
  std::vector<int64_t> sizes;
  if (c.has(3)) {
    BOWLINE_ASSIGN(sizes, c.integers(3));
  }
  constexpr std::string_view kCoordinates[] = {"half_pixel",           "pytorch_half_pixel",
                                               "align_corners",        "asymmetric",
                                               "tf_half_pixel_for_nn", "tf_crop_and_resize"};
  const bool known = std::ranges::find(kCoordinates, r.coordinates) != std::end(kCoordinates);
  BOWLINE_REQUIRE_CODE(known, Code::unsupported, "Coordinates \"{}\" are not known.",
                       escaped(r.coordinates));
  return resize_all(c, r, sizes.empty() ? scales : std::vector<double>(), sizes);
}

constexpr Lowering kResizeLowerings[] = {
    {"Resize", resize},
    {"Upsample", upsample},
};

}  // namespace

std::span<const Lowering> lowerings_of_resize() { return kResizeLowerings; }

}  // namespace bowline::onnx
