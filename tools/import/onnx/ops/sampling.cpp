// Operators that read elements at computed positions: GridSample, RoiAlign, and AffineGrid for the
// grids.
//
// An image is a table with a row per position and a column per channel. A Gather takes the rows of
// the neighbours of a position. The weight of a neighbour is a product over the axes. Positions
// outside of the image are moved inside before the lookup.
//
// Source  ONNX operators, GridSample, RoiAlign and AffineGrid.
#include <cmath>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A neighbour of a position along one axis.
struct Neighbour {
  Term place;   // i32
  Term weight;  // f32
};

struct Spatial {
  Dims dims;
  int64_t places = 1;
};

// The spatial dims determine the row of a position.
struct Table : Spatial {
  Term rows;  // [batch * places, channels]
};

// Reads the spatial dims of [batch, channels, spatial..].
Spatial spatial_of(const Term& x) {
  require(x.rank() >= 3, "{} has no spatial axes.", x.dims);
  Spatial out;
  out.dims.assign(x.dims.begin() + 2, x.dims.end());
  for (const int64_t d : out.dims) {
    support(d >= 1 && d < (int64_t{1} << 24), "{} cannot be sampled.", x.dims);
    out.places *= d;
  }
  return out;
}

// Errors  unsupported: an index of an element does not fit i32.
Table table_of(Context& c, const Term& x) {
  Table out{spatial_of(x), {}};
  support(x.elements() <= INT32_MAX, "{} is too large.", x.dims);
  const Term values = is_float(x.dtype) ? x : cast(x, DType::f32);
  out.rows = c.m.reshape(channels_last(c, values), {x.dims[0] * out.places, x.dims[1]});
  return out;
}

// Reflects x at both ends, as often as needed.
Term reflected(const Term& x, double low, double high) {
  if (high <= low) {
    return x * 0 + low;
  }
  const double span = high - low;
  const Term away = abs(x - low);
  const Term flips = floor(away * (1 / span));
  const Term rest = away - flips * span;
  const Term half = flips * 0.5;
  const Term even = floor(half) == half;
  return where(even, rest + low, high - rest);
}

struct Sampling {
  std::string mode, padding;
  bool corners = false;  // -1 and 1 are the centres of the first and last element, not their edges
};

// The element at an integer position and its weight. Outside of the image the weight is 0 if the
// padding is zeros.
Neighbour neighbour(const Sampling& s, Term place, Term weight, int64_t n) {
  const auto last = static_cast<double>(n - 1);
  const double edge = s.corners ? 0 : 0.5;
  if (s.padding == "reflection") {
    place = reflected(place, -edge, last + edge);
  } else if (s.padding == "zeros") {
    const Term outside = (place < 0) | (place > last);
    weight = where(outside, 0, weight);
  }
  return {cast(clip(place, 0, last), DType::i32), weight};
}

// Returns the neighbours of a grid position, which ranges from -1 to 1.
std::vector<Neighbour> neighbours(const Sampling& s, const Term& grid, int64_t n) {
  const auto size = static_cast<double>(n);
  const double edge = s.corners ? 0 : 0.5;
  Term x = s.corners ? (grid + 1) * ((size - 1) / 2) : ((grid + 1) * size - 1) * 0.5;
  if (s.mode == "nearest") {
    x = round(x);
  }
  // With the cubic filter, each neighbour is moved to the border instead.
  if (s.padding == "border" && s.mode != "cubic") {
    const Term outside = (x < -edge) | (x > size - 1 + edge);
    x = where(outside, clip(x, 0, size - 1), x);
  } else if (s.padding == "reflection") {
    x = reflected(x, -edge, size - 1 + edge);
  } else {
    x = clip(x, -3, size + 2);  // farther outside the result does not change
  }
  if (s.mode == "nearest") {
    return {neighbour(s, x, scalar_like(x, 1), n)};
  }
  const Term below = floor(x);
  const Term part = x - below;
  const Term left = 1 - part;
  if (s.mode == "linear") {
    return {neighbour(s, below, left, n), neighbour(s, below + 1, part, n)};
  }
  // Source  Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981; a = -0.75.
  constexpr double kA = -0.75;
  const auto near = [&](const Term& t) {
    const Term inner = t * (kA + 2) - (kA + 3);
    return inner * square(t) + 1;
  };
  const auto far = [&](const Term& t) {  // t in 0..1, the distance beyond the next element
    const Term d = t + 1;
    Term sum = d * kA - 5 * kA;
    sum = sum * d + 8 * kA;
    return sum * d - 4 * kA;
  };
  return {neighbour(s, below - 1, far(part), n), neighbour(s, below, near(part), n),
          neighbour(s, below + 1, near(left), n), neighbour(s, below + 2, far(left), n)};
}

// Combines one neighbour per axis to row indices and weights.
Neighbour together(const std::vector<Neighbour>& axes, const Dims& spatial) {
  Neighbour out = axes[0];
  for (size_t a = 1; a < axes.size(); ++a) {
    out.place = out.place * spatial[a] + axes[a].place;
    out.weight = out.weight * axes[a].weight;
  }
  return out;
}

// Gathers rows [dims.., channels] of the table and multiplies them by their weights.
Term weighted(Context& c, const Table& table, const Neighbour& at, const Term& first,
              const Dims& dims) {
  const Term rows = c.m.gather(table.rows, c.m.expand(at.place + first, dims), 0);
  const Term weight = c.m.reshape(c.m.expand(at.weight, dims), dims.joined({1}));
  return rows * cast(weight, table.rows.dtype);
}

// Returns [batch, channels, dims..]: the weighted sum over all corners.
Term sampled(Context& c, const Term& x, const std::vector<Neighbour>& corners, const Dims& dims) {
  const Table table = table_of(c, x);
  const Term first = c.m.count_along(0, dims.size(), dims[0]) * table.places;
  Term sum;
  for (const Neighbour& at : corners) {
    const Term part = weighted(c, table, at, first, dims);
    sum = sum ? sum + part : part;
  }
  return channels_second(c, sum);
}

// As sampled(), for a dynamic batch. Row indices would depend on the batch size, so each channel of
// each batch row is gathered separately.
Term sampled_apart(Context& c, const Term& x, const std::vector<Neighbour>& corners,
                   const Spatial& spatial, const Dims& dims) {
  const Term values = c.m.reshape(is_float(x.dtype) ? x : cast(x, DType::f32),
                                  {x.dims[0], x.dims[1], spatial.places});
  const int64_t each = corners[0].place.elements() / dims[0];
  const Dims row = {dims[0], 1, each}, all = {dims[0], x.dims[1], each};
  Term sum;
  for (const Neighbour& at : corners) {
    const Term places = c.m.expand(c.m.reshape(at.place, row), all);
    const Term weights = cast(c.m.reshape(c.m.expand(at.weight, dims), row), values.dtype);
    const Term taken =
        c.m.op("GatherElements", {values, places}, {{"axis", int64_t{2}}}, values.dtype, all);
    const Term part = taken * weights;
    sum = sum ? sum + part : part;
  }
  return c.m.reshape(sum, dims.inserted(1, {x.dims[1]}));
}

Term grid_sample(Context& c) {
  const Terms same = c.m.with_same_rows({c.in(0), c.in(1)});
  const Term &x = same[0], &grid = same[1];
  Sampling s{c.text("mode", c.opset < 20 ? "bilinear" : "linear"),
             c.choice("padding_mode", "zeros", "zeros border reflection", "Padding"),
             c.flag("align_corners", false)};
  s.mode = s.mode == "bilinear" ? "linear" : s.mode == "bicubic" ? "cubic" : s.mode;
  require(s.mode == "linear" || s.mode == "nearest" || s.mode == "cubic",
          "Mode \"{}\" is not supported.", escaped(s.mode));
  const Spatial spatial = spatial_of(x);
  const size_t axes = spatial.dims.size();
  const bool fits = axes <= 3 && grid.rank() == x.rank() && grid.dims[0] == x.dims[0] &&
                    grid.dims.back() == static_cast<int64_t>(axes);
  require(fits, "Grid {} does not fit {}.", grid.dims, x.dims);
  const Dims dims(grid.dims.begin(), grid.dims.end() - 1);
  const Term places = cast(grid, DType::f32);
  std::vector<std::vector<Neighbour>> along;
  for (size_t a = 0; a < axes; ++a) {  // a grid has the innermost axis first
    const Term place =
        c.m.at(places, static_cast<int64_t>(axes) + 1, static_cast<int64_t>(axes - 1 - a));
    along.push_back(neighbours(s, place, spatial.dims[a]));
  }
  const size_t each = along[0].size();
  std::vector<Neighbour> corners_of_all;
  for (size_t corner = 0; corner < static_cast<size_t>(std::pow(each, axes)); ++corner) {
    std::vector<Neighbour> chosen;
    for (size_t a = 0, rest = corner; a < axes; ++a, rest /= each) {
      chosen.push_back(along[a][rest % each]);
    }
    corners_of_all.push_back(together(chosen, spatial.dims));
  }
  const bool apart = c.m.has_batch(x) || c.m.has_batch(grid);
  const Term y = apart ? sampled_apart(c, x, corners_of_all, spatial, dims)
                       : sampled(c, x, corners_of_all, dims);
  return cast(y, x.dtype);
}

// Sample positions in a box along one axis: [boxes, bins * samples], two neighbours each.
std::vector<Neighbour> samples_of(Context& c, const Term& begin, const Term& end, int64_t bins,
                                  int64_t samples, bool aligned, int64_t n, const Dims& dims) {
  const auto last = static_cast<double>(n - 1);
  const Term length = aligned ? end - begin : max(end - begin, 1);
  const auto count = static_cast<double>(bins * samples);
  const Term part = c.m.table(DType::f32, dims.with(0, 1), [&](int64_t i) {  // of the box length
    return (static_cast<double>(i) + 0.5) / count;
  });
  const Term x = c.m.along(begin, 0, dims.size()) + c.m.along(length, 0, dims.size()) * part;
  const Term outside = (x < -1) | (x > n);
  const Term inside = clip(x, 0, last);
  const Term below = floor(inside);
  const Term upper = inside - below;
  const Term zero = scalar_like(x, 0);
  const Term lower = 1 - upper;
  return {{cast(below, DType::i32), where(outside, zero, lower)},
          {cast(clip(below + 1, 0, last), DType::i32), where(outside, zero, upper)}};
}

Term roi_align(Context& c) {
  const Term x = c.in(0), boxes = c.in(1), batch = c.in(2);
  const std::string mode = c.choice("mode", "avg", "avg max", "Mode");
  const int64_t height = c.integer("output_height", 1);
  const int64_t width = c.integer("output_width", 1);
  const int64_t samples = c.integer("sampling_ratio", 0);
  const double scale = c.real("spatial_scale", 1);
  const std::string coordinates =
      c.text("coordinate_transformation_mode", c.opset < 16 ? "output_half_pixel" : "half_pixel");
  require(coordinates == "half_pixel" || coordinates == "output_half_pixel",
          "Coordinates \"{}\" are not supported.", escaped(coordinates));
  support(samples != 0,
          "A sampling ratio of 0 is not supported: the number of samples would depend on data.");
  const bool fits = x.rank() == 4 && boxes.rank() == 2 && boxes.dims[1] == 4 &&
                    batch.dims == Dims{boxes.dims[0]} && height >= 1 && width >= 1 &&
                    height <= 4096 && width <= 4096 && samples >= 1 && samples <= 256;
  require(fits, "Boxes {} of {} by {} elements with {} samples do not fit {}.", boxes.dims, height,
          width, samples, x.dims);
  const Table table = table_of(c, x);
  const int64_t count = boxes.dims[0];
  const bool aligned = coordinates == "half_pixel";
  const Term edges = cast(boxes, DType::f32) * scale + (aligned ? -0.5 : 0.0);
  const auto edge = [&](int64_t i) { return c.m.at(edges, 1, i); };
  const auto down = samples_of(c, edge(1), edge(3), height, samples, aligned, x.dims[2],
                               {count, height * samples, 1});
  const auto across = samples_of(c, edge(0), edge(2), width, samples, aligned, x.dims[3],
                                 {count, 1, width * samples});
  const Dims dims = {count, height * samples, width * samples};
  const Term first = c.m.along(positive_indices(batch, x.dims[0]), 0, 3) * table.places;
  Term all;
  for (size_t corner = 0; corner < 4; ++corner) {
    const Neighbour at = together({down[corner / 2], across[corner % 2]}, table.dims);
    const Term part = weighted(c, table, at, first, dims);
    all = !all ? part : mode == "avg" ? all + part : max(all, part);
  }
  const Term bins = c.m.reshape(all, {count, height, samples, width, samples, x.dims[1]});
  const Term y = c.m.reduce(mode == "avg" ? "ReduceMean" : "ReduceMax", bins, {2, 4}, false);
  return c.m.transpose(y, {0, 3, 1, 2});
}

// Positions of an image of the requested size, transformed by theta.
Term affine_grid(Context& c) {
  const Term theta = c.in(0);
  const std::vector<int64_t> size = c.integers(1);
  const bool corners = c.flag("align_corners", false);
  const size_t axes = size.size() < 2 ? 0 : size.size() - 2;
  const auto n = static_cast<int64_t>(axes);
  require((axes == 2 || axes == 3) && theta.dims == (Dims{size[0], n, n + 1}),
          "Theta {} does not fit the size {}.", theta.dims, size);
  const int64_t elements = required(elements_of(size));
  const int64_t places = Dims(size).part(2, size.size()).product();
  support(elements > 0 && places <= kMostComputed / 4, "A grid of {} is empty or too large.", size);
  std::vector<double> base;  // x, y, (z,) 1 of each position
  for (int64_t place = 0; place < places; ++place) {
    int64_t rest = place;
    for (size_t a = axes; a-- > 0; rest /= size[a + 2]) {
      const auto dim = static_cast<double>(size[a + 2]);
      const auto i = static_cast<double>(rest % size[a + 2]);
      const double middle = (2 * i + 1) / dim - 1;
      base.push_back(!corners ? middle : dim == 1 ? 0 : 2 * i / (dim - 1) - 1);
    }
    base.push_back(1);
  }
  const Term table = c.m.constant(ConstantTensor::of(theta.dtype, {places, n + 1}, base));
  return c.m.reshape(c.m.matmul(table, theta, false, true), Dims(size).without(1).joined({n}));
}

constexpr Lowering kSamplingLowerings[] = {
    {"GridSample", grid_sample},
    {"RoiAlign", roi_align},
    {"AffineGrid", affine_grid},
};

}  // namespace

std::span<const Lowering> lowerings_of_sampling() { return kSamplingLowerings; }

}  // namespace bowline::onnx
