// Operators that read elements at computed positions: GridSample, RoiAlign, and AffineGrid for the
// grids.
//
// An image is a table with a row per position and a column per channel. A Gather takes the rows of
// the neighbours of a position. The weight of a neighbour is a product over the axes. Positions
// outside of the image are moved inside before the lookup.
//
// Source  ONNX operators, GridSample, RoiAlign and AffineGrid.
#include <algorithm>
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

struct Table {
  Term rows;     // [batch * places, channels]
  Dims spatial;  // spatial dims of the image, by which positions are counted
  int64_t places = 1;
};

struct Spatial {
  Dims dims;
  int64_t places = 1;
};

// Reads the spatial dims of [batch, channels, spatial..].
Result<Spatial> spatial_of(const Term& x) {
  BOWLINE_REQUIRE_CODE(x.rank() >= 3, Code::bad_file, "{} has no spatial axes.",
                       shape_text(x.dims));
  Spatial out;
  out.dims.assign(x.dims.begin() + 2, x.dims.end());
  for (const int64_t d : out.dims) {
    BOWLINE_REQUIRE_CODE(d >= 1 && d < (int64_t{1} << 24), Code::unsupported,
                         "{} cannot be sampled.", shape_text(x.dims));
    out.places *= d;
  }
  return out;
}

// Errors  unsupported: an index of an element does not fit i32.
Result<Table> table_of(Context& c, const Term& x) {
  BOWLINE_TRY_ASSIGN(const Spatial spatial, spatial_of(x));
  Table out;
  out.spatial = spatial.dims;
  out.places = spatial.places;
  BOWLINE_REQUIRE_CODE(x.elements() <= INT32_MAX, Code::unsupported, "{} is too large.",
                       shape_text(x.dims));
  std::vector<int64_t> order = all_axes(x.rank());
  order.erase(order.begin() + 1);
  order.push_back(1);
  const Term values = is_float(x.dtype) ? x : c.m.cast(x, DType::f32);
  out.rows = c.m.reshape(c.m.transpose(values, order), {x.dims[0] * out.places, x.dims[1]});
  return out;
}

Term clipped(Context& c, const Term& x, double least, double most) {
  return c.m.unary("Clip", x, {{"min", least}, {"max", most}});
}

Term either(Context& c, const Term& a, const Term& b) { return c.m.binary("Or", a, b); }

// Reflects x at both ends, as often as needed.
Term reflected(Context& c, const Term& x, double low, double high) {
  if (high <= low) {
    return c.m.add(c.m.mul(x, 0), low);
  }
  const double span = high - low;
  const Term away = c.m.unary("Abs", c.m.add(x, -low));
  const Term flips = c.m.unary("Floor", c.m.mul(away, 1 / span));
  const Term rest = c.m.sub(away, c.m.mul(flips, span));
  const Term half = c.m.mul(flips, 0.5);
  const Term even = c.m.compare("Equal", c.m.unary("Floor", half), half);
  return c.m.where(even, c.m.add(rest, low), c.m.sub(c.m.scalar(x.dtype, high), rest));
}

struct Sampling {
  std::string mode, padding;
  bool corners = false;  // -1 and 1 are the centres of the first and last element, not their edges
};

// The element at an integer position and its weight. Outside of the image the weight is 0 if the
// padding is zeros.
Neighbour neighbour(Context& c, const Sampling& s, Term place, Term weight, int64_t n) {
  const auto last = static_cast<double>(n - 1);
  const double edge = s.corners ? 0 : 0.5;
  if (s.padding == "reflection") {
    place = reflected(c, place, -edge, last + edge);
  } else if (s.padding == "zeros") {
    const Term outside = either(c, c.m.compare("Less", place, c.m.scalar(DType::f32, 0)),
                                c.m.compare("Greater", place, c.m.scalar(DType::f32, last)));
    weight = c.m.where(outside, c.m.scalar(DType::f32, 0), weight);
  }
  return {c.m.cast(clipped(c, place, 0, last), DType::i32), weight};
}

// Returns the neighbours of a grid position, which ranges from -1 to 1.
std::vector<Neighbour> neighbours(Context& c, const Sampling& s, const Term& grid, int64_t n) {
  const auto size = static_cast<double>(n);
  const double edge = s.corners ? 0 : 0.5;
  Term x = s.corners ? c.m.mul(c.m.add(grid, 1), (size - 1) / 2)
                     : c.m.mul(c.m.add(c.m.mul(c.m.add(grid, 1), size), -1), 0.5);
  if (s.mode == "nearest") {
    x = c.m.unary("Round", x);
  }
  if (s.padding == "border" &&
      s.mode != "cubic") {  // each neighbour of the cubic filter is moved to the border
    const Term outside = either(c, c.m.compare("Less", x, c.m.scalar(DType::f32, -edge)),
                                c.m.compare("Greater", x, c.m.scalar(DType::f32, size - 1 + edge)));
    x = c.m.where(outside, clipped(c, x, 0, size - 1), x);
  } else if (s.padding == "reflection") {
    x = reflected(c, x, -edge, size - 1 + edge);
  } else {
    x = clipped(c, x, -3, size + 2);  // farther outside the result does not change
  }
  if (s.mode == "nearest") {
    return {neighbour(c, s, x, c.m.scalar(DType::f32, 1), n)};
  }
  const Term below = c.m.unary("Floor", x);
  const Term part = c.m.sub(x, below);
  const Term left = c.m.sub(c.m.scalar(DType::f32, 1), part);
  if (s.mode == "linear") {
    return {neighbour(c, s, below, left, n), neighbour(c, s, c.m.add(below, 1), part, n)};
  }
  // Source  Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981; a = -0.75.
  constexpr double kA = -0.75;
  const auto near = [&](const Term& t) {
    const Term inner = c.m.add(c.m.mul(t, kA + 2), -(kA + 3));
    return c.m.add(c.m.mul(inner, c.m.unary("Square", t)), 1);
  };
  const auto far = [&](const Term& t) {  // t in 0..1, the distance beyond the next element
    const Term d = c.m.add(t, 1);
    Term sum = c.m.add(c.m.mul(d, kA), -5 * kA);
    sum = c.m.add(c.m.mul(sum, d), 8 * kA);
    return c.m.add(c.m.mul(sum, d), -4 * kA);
  };
  return {neighbour(c, s, c.m.add(below, -1), far(part), n), neighbour(c, s, below, near(part), n),
          neighbour(c, s, c.m.add(below, 1), near(left), n),
          neighbour(c, s, c.m.add(below, 2), far(left), n)};
}

// Combines one neighbour per axis to row indices and weights.
Neighbour together(Context& c, const std::vector<Neighbour>& axes, const Dims& spatial) {
  Neighbour out = axes[0];
  for (size_t a = 1; a < axes.size(); ++a) {
    out.place = c.m.add(c.m.mul(out.place, static_cast<double>(spatial[a])), axes[a].place);
    out.weight = c.m.mul(out.weight, axes[a].weight);
  }
  return out;
}

// Gathers rows [dims.., channels] of the table and multiplies them by their weights.
Term weighted(Context& c, const Table& table, const Neighbour& at, const Term& first,
              const Dims& dims) {
  Dims column = dims;
  column.push_back(1);
  const Term rows = c.m.gather(table.rows, c.m.expand(c.m.add(at.place, first), dims), 0);
  const Term weight = c.m.reshape(c.m.expand(at.weight, dims), column);
  return c.m.mul(rows, c.m.cast(weight, table.rows.dtype));
}

// Index of the first row of each batch row.
Term first_rows(Context& c, const Term& batch, const Table& table) {
  return c.m.mul(batch, static_cast<double>(table.places));
}

// Returns [batch, channels, dims..]: the weighted sum over all corners.
Result<Term> sampled(Context& c, const Term& x, const std::vector<Neighbour>& corners,
                     const Dims& dims) {
  BOWLINE_TRY_ASSIGN(const Table table, table_of(c, x));
  Dims batch(dims.size(), 1);
  batch[0] = dims[0];
  const Term first = first_rows(c, c.m.reshape(c.m.count(DType::i32, dims[0]), batch), table);
  Term sum;
  for (const Neighbour& at : corners) {
    const Term part = weighted(c, table, at, first, dims);
    sum = sum.source == nullptr ? part : c.m.add(sum, part);
  }
  std::vector<int64_t> back = all_axes(x.rank());
  std::rotate(back.begin() + 1, back.end() - 1, back.end());
  return c.m.transpose(sum, back);
}

// As sampled(), for a dynamic batch. Row indices would depend on the batch size, so each channel of
// each batch row is gathered separately.
Result<Term> sampled_apart(Context& c, const Term& x, const std::vector<Neighbour>& corners,
                           const Spatial& spatial, const Dims& dims) {
  const Term values = c.m.reshape(is_float(x.dtype) ? x : c.m.cast(x, DType::f32),
                                  {x.dims[0], x.dims[1], spatial.places});
  const int64_t each = corners[0].place.elements() / dims[0];
  const Dims row = {dims[0], 1, each}, all = {dims[0], x.dims[1], each};
  Term sum;
  for (const Neighbour& at : corners) {
    const Term places = c.m.expand(c.m.reshape(at.place, row), all);
    const Term weights = c.m.cast(c.m.reshape(c.m.expand(at.weight, dims), row), values.dtype);
    const Term taken =
        c.m.op("GatherElements", {values, places}, {{"axis", int64_t{2}}}, values.dtype, all);
    const Term part = c.m.mul(taken, weights);
    sum = sum.source == nullptr ? part : c.m.add(sum, part);
  }
  Dims wanted = dims;
  wanted.insert(wanted.begin() + 1, x.dims[1]);
  return c.m.reshape(sum, wanted);
}

Status grid_sample(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(Term grid, c.in(1));
  const Terms same = c.m.with_same_rows({x, grid});
  x = same[0];
  grid = same[1];
  Sampling s;
  BOWLINE_TRY_ASSIGN(s.mode, c.text("mode", c.opset < 20 ? "bilinear" : "linear"));
  BOWLINE_TRY_ASSIGN(s.padding, c.text("padding_mode", "zeros"));
  BOWLINE_TRY_ASSIGN(const int64_t corners, c.integer("align_corners", 0));
  s.corners = corners != 0;
  s.mode = s.mode == "bilinear" ? "linear" : s.mode == "bicubic" ? "cubic" : s.mode;
  BOWLINE_REQUIRE_CODE(s.mode == "linear" || s.mode == "nearest" || s.mode == "cubic",
                       Code::bad_file, "Mode \"{}\" is not supported.", escaped(s.mode));
  BOWLINE_REQUIRE_CODE(s.padding == "zeros" || s.padding == "border" || s.padding == "reflection",
                       Code::bad_file, "Padding \"{}\" is not supported.", escaped(s.padding));
  BOWLINE_TRY_ASSIGN(const Spatial spatial, spatial_of(x));
  const size_t axes = spatial.dims.size();
  const bool fits = axes <= 3 && grid.rank() == x.rank() && grid.dims[0] == x.dims[0] &&
                    grid.dims.back() == static_cast<int64_t>(axes);
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Grid {} does not fit {}.", shape_text(grid.dims),
                       shape_text(x.dims));
  const Dims dims(grid.dims.begin(), grid.dims.end() - 1);
  const Term places = c.m.cast(grid, DType::f32);
  std::vector<std::vector<Neighbour>> along;
  for (size_t a = 0; a < axes; ++a) {  // a grid has the innermost axis first
    const Term place =
        c.m.slice(places, static_cast<int64_t>(axes) + 1, static_cast<int64_t>(axes - 1 - a), 1);
    along.push_back(neighbours(c, s, c.m.reshape(place, dims), spatial.dims[a]));
  }
  const size_t each = along[0].size();
  std::vector<Neighbour> corners_of_all;
  for (size_t corner = 0; corner < static_cast<size_t>(std::pow(each, axes)); ++corner) {
    std::vector<Neighbour> chosen;
    for (size_t a = 0, rest = corner; a < axes; ++a, rest /= each) {
      chosen.push_back(along[a][rest % each]);
    }
    corners_of_all.push_back(together(c, chosen, spatial.dims));
  }
  const bool apart = c.m.has_batch(x) || c.m.has_batch(grid);
  BOWLINE_TRY_ASSIGN(const Term y, apart ? sampled_apart(c, x, corners_of_all, spatial, dims)
                                         : sampled(c, x, corners_of_all, dims));
  c.out(0, c.m.cast(y, x.dtype));
  return {};
}

// Sample positions in a box along one axis: [boxes, bins * samples], two neighbours each.
std::vector<Neighbour> samples_of(Context& c, const Term& begin, const Term& end, int64_t bins,
                                  int64_t samples, bool aligned, int64_t n, const Dims& dims) {
  const auto last = static_cast<double>(n - 1);
  Term length = c.m.sub(end, begin);
  if (!aligned) {
    length = c.m.binary("Max", length, c.m.scalar(DType::f32, 1));
  }
  std::vector<double> parts;  // fractions of the box length
  const auto count = static_cast<double>(bins * samples);
  for (int64_t i = 0; i < bins * samples; ++i) {
    parts.push_back((static_cast<double>(i) + 0.5) / count);
  }
  Dims along(dims.size(), 1), boxes(dims.size(), 1);
  boxes[0] = dims[0];
  for (size_t a = 1; a < dims.size(); ++a) {
    along[a] = dims[a];
  }
  const Term part = c.m.constant(ConstantTensor::of(DType::f32, along, parts));
  const Term x = c.m.add(c.m.reshape(begin, boxes), c.m.mul(c.m.reshape(length, boxes), part));
  const Term outside =
      either(c, c.m.compare("Less", x, c.m.scalar(DType::f32, -1)),
             c.m.compare("Greater", x, c.m.scalar(DType::f32, static_cast<double>(n))));
  const Term inside = clipped(c, x, 0, last);
  const Term below = c.m.unary("Floor", inside);
  const Term upper = c.m.sub(inside, below);
  const Term zero = c.m.scalar(DType::f32, 0);
  const Term lower = c.m.sub(c.m.scalar(DType::f32, 1), upper);
  return {{c.m.cast(below, DType::i32), c.m.where(outside, zero, lower)},
          {c.m.cast(clipped(c, c.m.add(below, 1), 0, last), DType::i32),
           c.m.where(outside, zero, upper)}};
}

Status roi_align(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term boxes, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term batch, c.in(2));
  BOWLINE_TRY_ASSIGN(const std::string mode, c.text("mode", "avg"));
  BOWLINE_TRY_ASSIGN(const int64_t height, c.integer("output_height", 1));
  BOWLINE_TRY_ASSIGN(const int64_t width, c.integer("output_width", 1));
  BOWLINE_TRY_ASSIGN(const int64_t samples, c.integer("sampling_ratio", 0));
  BOWLINE_TRY_ASSIGN(const double scale, c.real("spatial_scale", 1));
  BOWLINE_TRY_ASSIGN(
      const std::string coordinates,
      c.text("coordinate_transformation_mode", c.opset < 16 ? "output_half_pixel" : "half_pixel"));
  BOWLINE_REQUIRE_CODE(mode == "avg" || mode == "max", Code::bad_file,
                       "Mode \"{}\" is not supported.", escaped(mode));
  BOWLINE_REQUIRE_CODE(coordinates == "half_pixel" || coordinates == "output_half_pixel",
                       Code::bad_file, "Coordinates \"{}\" are not supported.",
                       escaped(coordinates));
  BOWLINE_REQUIRE_CODE(
      samples != 0, Code::unsupported,
      "A sampling ratio of 0 is not supported: the number of samples would depend on data.");
  const bool fits = x.rank() == 4 && boxes.rank() == 2 && boxes.dims[1] == 4 &&
                    batch.dims == Dims{boxes.dims[0]} && height >= 1 && width >= 1 &&
                    height <= 4096 && width <= 4096 && samples >= 1 && samples <= 256;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file,
                       "Boxes {} of {} by {} elements with {} samples do not fit {}.",
                       shape_text(boxes.dims), height, width, samples, shape_text(x.dims));
  BOWLINE_TRY_ASSIGN(const Table table, table_of(c, x));
  const int64_t count = boxes.dims[0];
  const bool aligned = coordinates == "half_pixel";
  const Term edges = c.m.add(c.m.mul(c.m.cast(boxes, DType::f32), scale), aligned ? -0.5 : 0.0);
  const auto edge = [&](int64_t i) { return c.m.reshape(c.m.slice(edges, 1, i, 1), {count}); };
  const auto down = samples_of(c, edge(1), edge(3), height, samples, aligned, x.dims[2],
                               {count, height * samples, 1});
  const auto across = samples_of(c, edge(0), edge(2), width, samples, aligned, x.dims[3],
                                 {count, 1, width * samples});
  const Dims dims = {count, height * samples, width * samples};
  const Term first =
      first_rows(c, c.m.reshape(positive_indices(c, batch, x.dims[0]), {count, 1, 1}), table);
  Term all;
  for (size_t corner = 0; corner < 4; ++corner) {
    const Neighbour at = together(c, {down[corner / 2], across[corner % 2]}, table.spatial);
    const Term part = weighted(c, table, at, first, dims);
    all = corner == 0 ? part : c.m.binary(mode == "avg" ? "Add" : "Max", all, part);
  }
  const Term bins = c.m.reshape(all, {count, height, samples, width, samples, x.dims[1]});
  const Term y = c.m.reduce(mode == "avg" ? "ReduceMean" : "ReduceMax", bins, {2, 4}, false);
  c.out(0, c.m.transpose(y, {0, 3, 1, 2}));
  return {};
}

// Positions of an image of the requested size, transformed by theta.
Status affine_grid(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term theta, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> size, c.integers(1));
  BOWLINE_TRY_ASSIGN(const int64_t corners, c.integer("align_corners", 0));
  const size_t axes = size.size() < 2 ? 0 : size.size() - 2;
  const auto n = static_cast<int64_t>(axes);
  BOWLINE_REQUIRE_CODE((axes == 2 || axes == 3) && theta.dims == (Dims{size[0], n, n + 1}),
                       Code::bad_file, "Theta {} does not fit the size {}.", shape_text(theta.dims),
                       shape_text(size));
  BOWLINE_TRY_ASSIGN(const int64_t elements, elements_of(size));
  int64_t places = 1;
  for (size_t a = 0; a < axes; ++a) {
    places *= size[a + 2];
  }
  BOWLINE_REQUIRE_CODE(elements > 0 && places <= kMostComputed / 4, Code::unsupported,
                       "A grid of {} is empty or too large.", shape_text(size));
  std::vector<double> base;  // x, y, (z,) 1 of each position
  for (int64_t place = 0; place < places; ++place) {
    int64_t rest = place;
    for (size_t a = axes; a-- > 0; rest /= size[a + 2]) {
      const auto dim = static_cast<double>(size[a + 2]);
      const auto i = static_cast<double>(rest % size[a + 2]);
      const double middle = (2 * i + 1) / dim - 1;
      base.push_back(corners == 0 ? middle : dim == 1 ? 0 : 2 * i / (dim - 1) - 1);
    }
    base.push_back(1);
  }
  const Term table = c.m.constant(ConstantTensor::of(theta.dtype, {places, n + 1}, base));
  Dims dims(size.begin() + 2, size.end());
  dims.insert(dims.begin(), size[0]);
  dims.push_back(n);
  c.out(0, c.m.reshape(c.m.matmul(table, theta, false, true), dims));
  return {};
}

constexpr Lowering kSamplingLowerings[] = {
    {"GridSample", grid_sample},
    {"RoiAlign", roi_align},
    {"AffineGrid", affine_grid},
};

}  // namespace

std::span<const Lowering> lowerings_of_sampling() { return kSamplingLowerings; }

}  // namespace bowline::onnx
