// Resize and Upsample, axis by axis. Nearest mode is a Gather with known indices. Interpolation is
// a product with a known matrix.
//
// Source  ONNX operators, Resize; its reference, onnx/backend/test/case/node/resize.py.
#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

struct Rules {
  std::string mode = "nearest";
  std::string coordinates = "asymmetric";
  std::string nearest = "floor";
  double a = -0.75;  // of the cubic filter
  bool exclude_outside = false;
  bool antialias = false;  // the filter is stretched if the output is smaller
  double extrapolation = 0;
  std::vector<double> roi;
};

struct Axis {
  int64_t in = 0, out = 0;
  double scale = 1;
  double roi_begin = 0, roi_end = 1;
};

// Returns the input coordinate of output element i.
double place_of(const Rules& r, const Axis& axis, int64_t i) {
  const auto x = static_cast<double>(i);
  const auto in = static_cast<double>(axis.in);
  // Computed in f32, because the scale is f32: the last bit can decide which element is nearest.
  const auto at = static_cast<float>(i);
  const auto scale = static_cast<float>(axis.scale);
  const auto out = static_cast<double>(axis.out);
  if (r.coordinates == "align_corners") {
    return axis.out == 1 ? 0 : x * (in - 1) / (out - 1);
  }
  if (r.coordinates == "asymmetric") {
    return at / scale;
  }
  if (r.coordinates == "tf_half_pixel_for_nn") {
    return (at + 0.5f) / scale;
  }
  if (r.coordinates == "tf_crop_and_resize") {
    const double part = axis.roi_end - axis.roi_begin;
    const double inside = axis.out == 1 ? part * (in - 1) / 2 : x * part * (in - 1) / (out - 1);
    return inside + axis.roi_begin * (in - 1);
  }
  if (r.coordinates == "pytorch_half_pixel" && axis.out == 1) {
    return 0;
  }
  if (r.coordinates == "half_pixel_symmetric") {
    const double cut = in / 2 * (1 - out / (axis.scale * in));
    return cut + (x + 0.5) / axis.scale - 0.5;
  }
  return (at + 0.5f) / scale - 0.5f;
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

// Cubic convolution filter at a distance.
// Source  Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
double cubic(double distance, double a) {
  const double t = std::abs(distance);
  if (t <= 1) {
    return ((a + 2) * t - (a + 3)) * t * t + 1;
  }
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

// Returns a matrix [in, out]: column i has the weights of output element i.
std::vector<double> weights_of(const Rules& r, const Axis& axis) {
  std::vector<double> out(static_cast<size_t>(axis.in * axis.out));
  const double stretch = r.antialias ? std::min(axis.scale, 1.0) : 1;
  const auto reach = static_cast<int64_t>(std::ceil((r.mode == "cubic" ? 2 : 1) / stretch));
  for (int64_t i = 0; i < axis.out; ++i) {
    const double place = place_of(r, axis, i);
    const auto below = static_cast<int64_t>(std::floor(place));
    double sum = 0;
    for (int64_t j = below - reach + 1; j <= below + reach; ++j) {
      const double distance = (place - static_cast<double>(j)) * stretch;
      const double weight =
          r.mode == "cubic" ? cubic(distance, r.a) : std::max(1 - std::abs(distance), 0.0);
      const bool outside = j < 0 || j >= axis.in;
      if (outside && r.exclude_outside) {
        continue;
      }
      sum += weight;
      const int64_t at = std::clamp<int64_t>(j, 0, axis.in - 1);
      out[static_cast<size_t>(at * axis.out + i)] += weight;
    }
    for (int64_t j = 0; j < axis.in && (r.exclude_outside || r.antialias); ++j) {
      out[static_cast<size_t>(j * axis.out + i)] /= sum;
    }
  }
  return out;
}

Term resized(Context& c, const Rules& r, const Term& x, int64_t a, const Axis& axis) {
  require(axis.in >= 1 && axis.out >= 0, "Axis {} of {} cannot be resized to {} elements.", a,
          x.dims, axis.out);
  support(
      axis.in <= kMostComputed && axis.out <= kMostComputed && axis.in * axis.out <= kMostComputed,
      "An axis from {} to {} elements is too long.", axis.in, axis.out);
  if (r.mode == "nearest") {
    const Term indices = c.m.table(DType::i32, {axis.out}, [&](int64_t i) {
      return nearest_to(r, place_of(r, axis, i), axis.in);
    });
    return c.m.gather(x, indices, a);
  }
  const Dims swap = swapped(x.rank(), a, static_cast<int64_t>(x.rank()) - 1);
  const Term matrix =
      c.m.constant(ConstantTensor::of(x.dtype, {axis.in, axis.out}, weights_of(r, axis)));
  const Term moved = c.m.transpose(x, swap);
  return c.m.transpose(rows_times(c, moved, matrix, moved.dims.with_last(axis.out)), swap);
}

// Output elements from outside of the input get the extrapolation value.
Term extrapolated(Context& c, const Rules& r, const Term& y, int64_t a, const Axis& axis) {
  std::vector<int64_t> outside;
  for (int64_t i = 0; i < axis.out; ++i) {
    const double place = place_of(r, axis, i);
    outside.push_back(place < 0 || place > static_cast<double>(axis.in - 1) ? 1 : 0);
  }
  if (std::ranges::count(outside, 1) == 0) {
    return y;
  }
  const Term mask = c.m.integers(DType::boolean, {axis.out}, outside);
  return where(c.m.along(mask, a, y.rank()), r.extrapolation, y);
}

// `scales` and `sizes` have an entry per axis, or are empty. The missing list is computed from the
// other.
Term resize_all(Context& c, const Rules& r, const std::vector<double>& scales,
                const std::vector<int64_t>& sizes) {
  Term x = c.in(0);
  const size_t rank = x.rank();
  const bool fits = (scales.size() == rank && (sizes.empty() || sizes.size() == rank)) ||
                    (scales.empty() && sizes.size() == rank);
  require(fits, "{} scales and {} sizes do not fit {}.", scales.size(), sizes.size(), x.dims);
  const bool crops = r.coordinates == "tf_crop_and_resize";
  require(!crops || r.roi.size() == 2 * rank, "A region of {} values does not fit {}.",
          r.roi.size(), x.dims);
  const bool near = std::ranges::all_of(r.roi, [](double v) { return std::abs(v) <= 1e6; });
  require(near, "Input roi has a value beyond 10^6.");
  require_small("Sizes", sizes);
  const bool known = r.mode == "nearest" || r.mode == "linear" || r.mode == "cubic";
  support(known, "Mode \"{}\" is not supported.", escaped(r.mode));
  std::vector<Axis> axes;
  for (size_t a = 0; a < rank; ++a) {
    Axis axis;
    axis.in = x.dims[a];
    axis.scale =
        scales.empty() ? static_cast<double>(sizes[a]) / static_cast<double>(axis.in) : scales[a];
    // Compute the size in f32: there 0.7 times 10 is 7, as in PyTorch. The double product of the
    // f32 scale is below 7.
    const double width =
        sizes.empty() ? std::floor(static_cast<float>(axis.scale) * static_cast<float>(axis.in))
                      : static_cast<double>(sizes[a]);
    require(axis.scale > 0 && width <= INT32_MAX, "Axis {} of {} cannot be scaled by {}.", a,
            x.dims, axis.scale);
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
      x = resized(c, r, x, static_cast<int64_t>(a), axes[a]);
    }
  }
  for (size_t a = 0; a < rank && crops; ++a) {
    x = extrapolated(c, r, x, static_cast<int64_t>(a), axes[a]);
  }
  return x;
}

std::vector<double> optional_reals(Context& c, size_t i) {
  return c.has(i) ? c.numbers(i).reals() : std::vector<double>();
}

Term upsample(Context& c) {
  Rules r;
  r.mode = c.text("mode", "nearest");
  return resize_all(c, r, c.opset < 9 ? c.reals("scales") : optional_reals(c, 1), {});
}

// Uses one scale for all resized axes, so that no axis exceeds (or falls below) its requested size.
void keep_aspect_ratio(const std::string& policy, const Term& x, const std::vector<int64_t>& axes,
                       std::vector<double>& scales, std::vector<int64_t>& sizes) {
  if (policy == "stretch" || sizes.size() != x.rank()) {
    return;
  }
  double scale = policy == "not_larger" ? INFINITY : 0;
  for (const int64_t given : axes) {
    const auto i = static_cast<size_t>(axis_of(given, x.rank()));
    const double of = static_cast<double>(sizes[i]) / static_cast<double>(x.dims[i]);
    scale = policy == "not_larger" ? std::min(scale, of) : std::max(scale, of);
  }
  require(std::isfinite(scale) && scale > 0, "{} cannot become {}.", x.dims, sizes);
  scales.assign(x.rank(), 1);
  for (const int64_t given : axes) {
    const auto i = static_cast<size_t>(axis_of(given, x.rank()));
    const double size = std::floor(scale * static_cast<double>(x.dims[i]) + 0.5);
    require(size <= INT32_MAX, "Axis {} of {} is scaled by {}.", i, x.dims, scale);
    scales[i] = scale;
    sizes[i] = static_cast<int64_t>(size);
  }
}

Term resize(Context& c) {
  if (c.opset < 11) {
    return upsample(c);
  }
  Rules r;
  r.mode = c.text("mode", "nearest");
  r.coordinates = c.text("coordinate_transformation_mode", "half_pixel");
  r.nearest = c.text("nearest_mode", "round_prefer_floor");
  r.a = c.real("cubic_coeff_a", -0.75);
  r.exclude_outside = c.flag("exclude_outside", false);
  r.extrapolation = c.real("extrapolation_value", 0);
  r.antialias = c.flag("antialias", false);
  require(!r.antialias || r.mode != "nearest", "Mode \"nearest\" does not support antialiasing.");
  const std::string policy = c.choice("keep_aspect_ratio_policy", "stretch",
                                      "stretch not_larger not_smaller", "Keep_aspect_ratio_policy");
  const Term x = c.in(0);
  const std::vector<int64_t> axes = c.list("axes");
  r.roi = optional_reals(c, 1);
  if (r.roi.size() == 2 * axes.size()) {
    std::vector<double> whole(2 * x.rank(), 1);
    std::fill_n(whole.begin(), x.rank(), 0);
    r.roi = of_all_axes(r.roi, axes, whole, 2);
  }
  std::vector<double> scales = optional_reals(c, 2);
  std::vector<int64_t> sizes = c.has(3) ? c.integers(3) : std::vector<int64_t>();
  const bool known = is_one_of(
      "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
      "tf_half_pixel_for_nn tf_crop_and_resize",
      r.coordinates);
  support(known, "Coordinates \"{}\" are not supported.", escaped(r.coordinates));
  if (!sizes.empty()) {
    scales.clear();
  }
  scales = of_all_axes(scales, axes, std::vector<double>(x.rank(), 1));
  sizes = of_all_axes(sizes, axes, x.dims);
  keep_aspect_ratio(policy, x, axes.empty() ? all_axes(x.rank()) : axes, scales, sizes);
  return resize_all(c, r, scales, sizes);
}

constexpr Lowering kResizeLowerings[] = {
    {"Resize", resize},
    {"Upsample", upsample},
};

}  // namespace

std::span<const Lowering> lowerings_of_resize() { return kResizeLowerings; }

}  // namespace bowline::onnx
