// Operators that change shape, order or position of elements, and operators that read shapes.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/escape.h"
#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A trained parameter with equal elements, such as the ones and zeros of a new normalization layer.
bool is_uniform_weight(const Term& x) {
  const bool own = x.constant() && x.source->kept && x.source->later == nullptr;
  if (!own || x.elements() < 2) {
    return false;
  }
  const std::vector<std::byte>& bytes = x.numbers()->bytes;
  const auto width = static_cast<std::ptrdiff_t>(size_of(x.dtype));
  return std::equal(bytes.begin() + width, bytes.end(), bytes.begin());
}

// PyTorch writes equal weights once, with an Identity for each copy. A weight with equal elements
// may be equal by chance, so each copy trains separately. All others are tied.
Status identity(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, is_uniform_weight(x) ? c.m.weight(*x.numbers(), c.node().output(0), c.readers(0)) : x);
  return {};
}

// Returns the shape of a Reshape: 0 keeps the dim (unless allow_zero), -1 is inferred.
Result<Dims> reshaped_dims(const Dims& from, const std::vector<int64_t>& wanted, bool allow_zero) {
  Dims dims = wanted;
  int64_t open = -1;
  int64_t rest = 1;
  for (size_t a = 0; a < dims.size(); ++a) {
    BOWLINE_REQUIRE_CODE(dims[a] >= -1, Code::bad_file, "Dim {} is {}.", a, dims[a]);
    if (dims[a] == 0 && !allow_zero) {
      BOWLINE_REQUIRE_CODE(a < from.size(), Code::bad_file,
                           "Dim {} keeps the size of an axis that {} does not have.", a,
                           shape_text(from));
      dims[a] = from[a];
    }
    if (dims[a] == -1) {
      BOWLINE_REQUIRE_CODE(open < 0, Code::bad_file, "Two dims of {} are -1.", shape_text(dims));
      open = static_cast<int64_t>(a);
      continue;
    }
    BOWLINE_REQUIRE_CODE(dims[a] == 0 || rest <= kMostElements / dims[a], Code::bad_file,
                         "Shape {} has too many elements.", shape_text(dims));
    rest *= dims[a];
  }
  if (open >= 0) {
    const int64_t elements = Term{DType::f32, from, nullptr}.elements();
    BOWLINE_REQUIRE_CODE(rest != 0 && elements % rest == 0, Code::bad_file,
                         "Shape {} does not fit {}.", shape_text(dims), shape_text(from));
    dims[static_cast<size_t>(open)] = elements / rest;
  }
  return dims;
}

// If the graph was exported for one row, a shape that does not depend on the batch size is the
// shape of a row.
Status reshape(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> wanted, c.list_or_input("shape", 1));
  BOWLINE_TRY_ASSIGN(const int64_t allow_zero, c.integer("allowzero", 0));
  const bool of_rows = c.m.has_rows_of_one(x) && !c.m.follows_from_batch(wanted);
  BOWLINE_TRY_ASSIGN(const Dims dims,
                     reshaped_dims(of_rows ? c.m.row_dims(x) : x.dims, wanted, allow_zero != 0));
  c.out(0, of_rows ? c.m.reshape_rows(x, dims) : c.m.reshape(x, dims));
  return {};
}

Status flatten(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(int64_t axis, c.integer("axis", 1));
  axis += axis < 0 ? static_cast<int64_t>(x.rank()) : 0;
  BOWLINE_REQUIRE_CODE(axis >= 0 && axis <= static_cast<int64_t>(x.rank()), Code::bad_file,
                       "Axis {} is out of range for {}.", axis, shape_text(x.dims));
  const Term front{x.dtype, Dims(x.dims.begin(), x.dims.begin() + axis), nullptr};
  const Term back{x.dtype, Dims(x.dims.begin() + axis, x.dims.end()), nullptr};
  c.out(0, c.m.reshape(x, {front.elements(), back.elements()}));
  return {};
}

Status squeeze(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, c.list_or_input("axes", 1));
  const bool all = !c.has(1) && !c.has_attribute("axes");
  const Dims row = c.m.row_dims(x);
  std::vector<bool> gone(x.rank());
  for (size_t a = 0; a < x.rank(); ++a) {
    gone[a] = all && row[a] == 1;
  }
  for (const int64_t given : axes) {
    BOWLINE_TRY_ASSIGN(const int64_t a, axis_of(given, x.rank()));
    BOWLINE_REQUIRE_CODE(row[static_cast<size_t>(a)] == 1, Code::bad_file,
                         "Axis {} of {} does not have size 1.", a, shape_text(x.dims));
    gone[static_cast<size_t>(a)] = true;
  }
  bool without_batch = false;
  Dims dims, row_left;
  for (size_t a = 0; a < x.rank(); ++a) {
    without_batch = without_batch || (gone[a] && c.m.is_axis_of_one(x, static_cast<int64_t>(a)));
    if (!gone[a]) {
      dims.push_back(x.dims[a]);
      row_left.push_back(row[a]);
    }
  }
  c.out(0, without_batch ? c.m.reshape_rows(x, row_left) : c.m.reshape(x, dims));
  return {};
}

Status unsqueeze(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, c.list_or_input("axes", 1));
  const size_t rank = x.rank() + axes.size();
  BOWLINE_REQUIRE_CODE(rank <= kMostRank, Code::unsupported, "The result has {} axes.", rank);
  std::vector<bool> added(rank);
  for (const int64_t given : axes) {
    BOWLINE_TRY_ASSIGN(const int64_t a, axis_of(given, rank));
    BOWLINE_REQUIRE_CODE(!added[static_cast<size_t>(a)], Code::bad_file, "Axis {} is added twice.",
                         a);
    added[static_cast<size_t>(a)] = true;
  }
  // Rows without a batch axis may get the axis back.
  const bool shared = c.m.has_rows_of_one(x) && !c.m.is_axis_of_one(x, x.source->batch->axis);
  const Dims old = shared ? c.m.row_dims(x) : x.dims;
  Dims dims;
  size_t from = 0;
  for (size_t a = 0; a < rank; ++a) {
    dims.push_back(added[a] ? 1 : old[from++]);
  }
  c.out(0, shared ? c.m.reshape_rows(x, dims) : c.m.reshape(x, dims));
  return {};
}

Status transpose(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> permutation, c.list("perm"));
  if (!c.has_attribute("perm")) {
    permutation = all_axes(x.rank());
    std::ranges::reverse(permutation);
  }
  c.out(0, c.m.transpose(x, permutation));
  return {};
}

Status concat(Context& c) {
  Terms parts;
  for (size_t i = 0; i < c.inputs(); ++i) {
    BOWLINE_TRY_ASSIGN(Term part, c.in(i));
    parts.push_back(std::move(part));
  }
  BOWLINE_TRY_ASSIGN(const int64_t axis, c.integer("axis", 1));
  c.out(0, c.m.concat(parts, axis));
  return {};
}

Status split(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 0));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> sizes, c.list_or_input("split", 1));
  const int64_t dim = x.dims[static_cast<size_t>(axis)];
  const auto count = static_cast<int64_t>(c.outputs());
  BOWLINE_REQUIRE_CODE(count > 0, Code::bad_file, "The node has no outputs.");
  // From operator set 18 on the last part may be smaller.
  BOWLINE_TRY_ASSIGN(const int64_t parts_wanted, c.integer("num_outputs", count));
  BOWLINE_REQUIRE_CODE(parts_wanted == count, Code::bad_file,
                       "Attribute \"num_outputs\" is {}, but the node has {} outputs.",
                       parts_wanted, count);
  if (sizes.empty()) {
    BOWLINE_REQUIRE_CODE(c.opset >= 18 || dim % count == 0, Code::bad_file,
                         "Axis {} of {} cannot be split into {} equal parts.", axis,
                         shape_text(x.dims), count);
    const int64_t size = (dim + count - 1) / count;
    sizes.assign(c.outputs(), size);
    sizes.back() = dim - size * (count - 1);
  }
  BOWLINE_REQUIRE_CODE(sizes.size() == c.outputs(), Code::bad_file,
                       "The node has {} sizes, but {} outputs.", sizes.size(), c.outputs());
  const Terms parts = c.m.split(x, axis, sizes);
  for (size_t i = 0; i < parts.size(); ++i) {
    c.out(i, parts[i]);
  }
  return {};
}

// Elements start, start + step, .. before end. An out-of-range start is clamped to the first or
// last element, even where Python returns nothing: x[-9:-9:-1] of four elements returns the first.
Term strided(Context& c, const Term& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  const bool of_row = c.m.is_axis_of_one(x, axis);
  const int64_t dim = of_row ? 1 : x.dims[static_cast<size_t>(axis)];
  const bool up = step > 0;
  const auto inside = [&](int64_t i, int64_t least) {
    i = i < 0 ? std::max(i, -dim - 1) + dim : std::min(i, dim);
    return std::clamp<int64_t>(i, least, std::max(up ? dim : dim - 1, least));
  };
  const int64_t from = inside(start, 0);
  const int64_t to = dim == 0 ? 0 : inside(end, up ? 0 : -1);
  if (of_row && from != to) {
    return x;  // selects the whole row
  }
  if (step == 1) {
    return c.m.slice(x, axis, from, std::max<int64_t>(to - from, 0));
  }
  if (dim > kMostComputed) {
    return c.m.fail(Status(Code::unsupported,
                           fmt::format("An axis of {} is too long for steps of {}.", dim, step)));
  }
  std::vector<int64_t> indices;
  step = std::clamp(step, -dim - 1, dim + 1);
  for (int64_t i = from; up ? i < to : i > to; i += step) {
    indices.push_back(i);
  }
  const auto count = static_cast<int64_t>(indices.size());
  return c.m.gather(x, c.m.integers(DType::i32, {count}, indices), axis);
}

Status slice(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> starts, c.list_or_input("starts", 1));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> ends, c.list_or_input("ends", 2));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> axes, c.list_or_input("axes", 3));
  std::vector<int64_t> steps(starts.size(), 1);
  if (c.has(4)) {
    BOWLINE_TRY_ASSIGN(steps, c.integers(4));
  }
  if (axes.empty()) {
    axes = all_axes(starts.size());
  }
  const size_t n = starts.size();
  BOWLINE_REQUIRE_CODE(ends.size() == n && axes.size() == n && steps.size() == n, Code::bad_file,
                       "The counts of {} starts, {} ends, {} axes and {} steps differ.", n,
                       ends.size(), axes.size(), steps.size());
  for (size_t i = 0; i < n; ++i) {
    BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(axes[i], x.rank()));
    BOWLINE_REQUIRE_CODE(steps[i] != 0, Code::bad_file, "Step {} is 0.", i);
    BOWLINE_REQUIRE_CODE(!c.m.follows_from_batch({starts[i], ends[i]}) ||
                             c.m.follows_from_batch({x.dims[static_cast<size_t>(axis)]}),
                         Code::unsupported,
                         "The slice of axis {} depends on the size of the batch.", axis);
    x = strided(c, x, axis, starts[i], ends[i], steps[i]);
  }
  c.out(0, x);
  return {};
}

// Extends pads of some axes to all axes.
Result<std::vector<int64_t>> pads_of_axes(const std::vector<int64_t>& pads,
                                          const std::vector<int64_t>& axes, size_t rank) {
  BOWLINE_REQUIRE_CODE(pads.size() == 2 * axes.size(), Code::bad_file,
                       "{} pads do not fit {} axes.", pads.size(), axes.size());
  std::vector<int64_t> out(2 * rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    BOWLINE_TRY_ASSIGN(const int64_t a, axis_of(axes[i], rank));
    out[static_cast<size_t>(a)] = pads[i];
    out[rank + static_cast<size_t>(a)] = pads[axes.size() + i];
  }
  return out;
}

// Elements -begin to dim + end of a periodic axis.
Term wrapped_around(Context& c, const Term& x, size_t axis, int64_t begin, int64_t end) {
  const int64_t dim = x.dims[axis];
  const int64_t count = dim + begin + end;
  if (dim == 0 || count > kMostComputed) {
    return c.m.fail(Status(Code::unsupported, fmt::format("Axis {} of {} cannot wrap around.", axis,
                                                          shape_text(x.dims))));
  }
  std::vector<int64_t> indices;
  for (int64_t i = -begin; i < dim + end; ++i) {
    indices.push_back((i % dim + dim) % dim);
  }
  return c.m.gather(x, c.m.integers(DType::i32, {count}, indices), static_cast<int64_t>(axis));
}

// Pads with a value that is not known when the model is read: concatenates blocks of it along each
// axis.
Term padded_with(Context& c, Term x, const Term& value, const std::vector<int64_t>& begin,
                 const std::vector<int64_t>& end) {
  for (size_t a = 0; a < begin.size(); ++a) {
    Terms parts;
    const auto piece = [&](int64_t length) {
      Dims dims = x.dims;
      dims[a] = length;
      if (length > 0) {
        parts.push_back(c.m.expand(value, dims));
      }
    };
    piece(begin[a]);
    parts.push_back(x);
    piece(end[a]);
    x = c.m.concat(parts, static_cast<int64_t>(a));
  }
  return x;
}

// Negative pads remove elements.
Status pad(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> pads, c.opset < 11 ? c.list("pads") : c.integers(1));
  BOWLINE_TRY_ASSIGN(const std::string mode, c.text("mode", "constant"));
  BOWLINE_TRY(require_small("Pads", pads));
  double value = 0;
  Term unknown;  // the padding value
  if (c.opset < 11) {
    BOWLINE_TRY_ASSIGN(value, c.real("value", 0));
  } else if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(unknown, c.in(2));
    BOWLINE_REQUIRE_CODE(unknown.elements() == 1 && unknown.dtype == x.dtype, Code::bad_file,
                         "The value of the pads has {} elements of {}.", unknown.elements(),
                         bowline::name_of(unknown.dtype));
    // The operator stores its value as f32, which cannot hold every integer.
    const ConstantTensor* const known = unknown.numbers();
    const bool fits = known != nullptr && known->of_batch.empty() &&
                      (is_float(x.dtype) || std::abs(known->reals()[0]) <= 0x1p24);
    if (fits) {
      value = known->reals()[0];
      unknown.source = nullptr;
    }
  }
  const bool wraps = mode == "wrap";
  BOWLINE_REQUIRE_CODE(mode == "constant" || mode == "reflect" || mode == "edge" || wraps,
                       Code::unsupported, "Mode \"{}\" is not supported.", escaped(mode));
  const size_t rank = x.rank();
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, c.integers(3));
    BOWLINE_TRY_ASSIGN(pads, pads_of_axes(pads, axes, rank));
  }
  BOWLINE_REQUIRE_CODE(pads.size() == 2 * rank, Code::bad_file, "{} pads do not fit {}.",
                       pads.size(), shape_text(x.dims));
  Dims dims = x.dims;
  std::vector<int64_t> begin(rank), end(rank);
  for (size_t a = 0; a < rank; ++a) {
    const int64_t before = std::max<int64_t>(-pads[a], 0);
    const int64_t behind = std::max<int64_t>(-pads[rank + a], 0);
    BOWLINE_REQUIRE_CODE(before + behind <= dims[a], Code::bad_file,
                         "Axis {} of {} is cut off by {}.", a, shape_text(x.dims), before + behind);
    x = c.m.slice(x, static_cast<int64_t>(a), before, dims[a] - before - behind);
    begin[a] = std::max<int64_t>(pads[a], 0);
    end[a] = std::max<int64_t>(pads[rank + a], 0);
    dims[a] = dims[a] - before - behind + begin[a] + end[a];
    if (wraps && begin[a] + end[a] > 0) {
      x = wrapped_around(c, x, a, begin[a], end[a]);
    }
  }
  if (unknown.source != nullptr && mode == "constant") {
    c.out(0, padded_with(c, x, c.m.reshape(unknown, {}), begin, end));
    return {};
  }
  c.out(0, dims == x.dims ? x
                          : c.m.op("Pad", {x},
                                   {{"begin", graph_dims(begin)},
                                    {"end", graph_dims(end)},
                                    {"mode", mode},
                                    {"value", value}},
                                   x.dtype, dims));
  return {};
}

// Crops to the middle of each axis, or pads with zeros. An odd remainder goes to the end.
Status center_crop_pad(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> sizes, c.integers(1));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> axes, c.list("axes"));
  if (axes.empty()) {
    axes = all_axes(x.rank());
  }
  BOWLINE_TRY(require_small("Shape", sizes));
  BOWLINE_REQUIRE_CODE(sizes.size() == axes.size(), Code::bad_file, "{} sizes do not fit {} axes.",
                       sizes.size(), axes.size());
  Dims dims = x.dims;
  std::vector<int64_t> begin(x.rank(), 0), end(x.rank(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(axes[i], dims.size()));
    const auto a = static_cast<size_t>(axis);
    BOWLINE_REQUIRE_CODE(sizes[i] >= 0, Code::bad_file, "Size {} is {}.", i, sizes[i]);
    if (sizes[i] < dims[a]) {
      x = c.m.slice(x, axis, (dims[a] - sizes[i]) / 2, sizes[i]);
    } else {
      begin[a] = (sizes[i] - dims[a]) / 2;
      end[a] = sizes[i] - dims[a] - begin[a];
    }
    dims[a] = sizes[i];
  }
  c.out(0, dims == x.dims
               ? x
               : c.m.op("Pad", {x}, {{"begin", graph_dims(begin)}, {"end", graph_dims(end)}},
                        x.dtype, dims));
  return {};
}

Status expand(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Dims dims, c.integers(1));
  c.out(0, c.m.expand(x, dims));
  return {};
}

Status tile(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> repeats, c.integers(1));
  BOWLINE_REQUIRE_CODE(repeats.size() == x.rank(), Code::bad_file, "{} repeats do not fit {}.",
                       repeats.size(), shape_text(x.dims));
  BOWLINE_TRY(require_small("Repeats", repeats));
  Dims dims = x.dims;
  for (size_t a = 0; a < dims.size(); ++a) {
    BOWLINE_REQUIRE_CODE(
        repeats[a] >= 0 && (repeats[a] == 0 || dims[a] <= kMostElements / repeats[a]),
        Code::bad_file, "Repeat {} is {}.", a, repeats[a]);
    dims[a] *= repeats[a];
  }
  c.out(0, c.m.op("Tile", {x}, {{"repeats", graph_dims(repeats)}}, x.dtype, dims));
  return {};
}

// Moves blocks between the depth (axis 1) and the last two axes.
Status depth_to_space(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t b, c.integer("blocksize", 0));
  BOWLINE_TRY_ASSIGN(const std::string mode, c.text("mode", "DCR"));
  BOWLINE_REQUIRE_CODE(x.rank() == 4 && b > 0 && b <= 32768 && x.dims[1] % (b * b) == 0,
                       Code::bad_file, "{} cannot be split into blocks of {}.", shape_text(x.dims),
                       b);
  const int64_t n = x.dims[0], d = x.dims[1] / (b * b), h = x.dims[2], w = x.dims[3];
  const bool depth_first = mode == "DCR";
  const Term blocks = c.m.reshape(x, depth_first ? Dims{n, b, b, d, h, w} : Dims{n, d, b, b, h, w});
  const Term moved = depth_first ? c.m.transpose(blocks, {0, 3, 4, 1, 5, 2})
                                 : c.m.transpose(blocks, {0, 1, 4, 2, 5, 3});
  c.out(0, c.m.reshape(moved, {n, d, h * b, w * b}));
  return {};
}

Status space_to_depth(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t b, c.integer("blocksize", 0));
  const bool fits =
      x.rank() == 4 && b > 0 && b <= 32768 && x.dims[2] % b == 0 && x.dims[3] % b == 0;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "{} cannot be split into blocks of {}.",
                       shape_text(x.dims), b);
  BOWLINE_TRY_ASSIGN(const std::string mode, c.text("mode", "DCR"));
  BOWLINE_REQUIRE_CODE(mode == "DCR" || mode == "CRD", Code::bad_file,
                       "Mode \"{}\" is not supported.", escaped(mode));
  const int64_t n = x.dims[0], d = x.dims[1], h = x.dims[2] / b, w = x.dims[3] / b;
  const Term blocks = c.m.reshape(x, {n, d, h, b, w, b});
  const Term moved = mode == "DCR" ? c.m.transpose(blocks, {0, 3, 5, 1, 2, 4})
                                   : c.m.transpose(blocks, {0, 1, 3, 5, 2, 4});
  c.out(0, c.m.reshape(moved, {n, d * b * b, h, w}));
  return {};
}

// Returns the value of a Constant node.
Result<ConstantTensor> value_of_constant(Context& c) {
  if (c.has_attribute("value_float")) {
    BOWLINE_TRY_ASSIGN(const double value, c.real("value_float", 0));
    return ConstantTensor::of(DType::f32, {}, std::vector<double>{value});
  }
  if (c.has_attribute("value_int")) {
    BOWLINE_TRY_ASSIGN(const int64_t value, c.integer("value_int", 0));
    return ConstantTensor::of(DType::i64, {}, std::vector<int64_t>{value});
  }
  if (c.has_attribute("value_floats")) {
    BOWLINE_TRY_ASSIGN(const std::vector<double> values, c.reals("value_floats"));
    return ConstantTensor::of(DType::f32, {static_cast<int64_t>(values.size())}, values);
  }
  if (c.has_attribute("value_ints")) {
    BOWLINE_TRY_ASSIGN(const std::vector<int64_t> values, c.list("value_ints"));
    return ConstantTensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
  }
  return c.tensor("value");
}

// Floats with more than one element are weights: some exporters write all weights as constants.
Status constant(Context& c) {
  BOWLINE_TRY_ASSIGN(ConstantTensor value, value_of_constant(c));
  const bool weight = is_float(value.dtype) && value.elements() > 1 && c.outputs() > 0;
  c.out(0, weight ? c.m.weight(std::move(value), c.node().output(0), c.readers(0))
                  : c.m.stored(std::move(value)));
  return {};
}

Status constant_of_shape(Context& c) {
  BOWLINE_TRY_ASSIGN(const Dims dims, c.integers(0));
  ConstantTensor value = ConstantTensor::of(DType::f32, {}, std::vector<double>{0});
  if (c.has_attribute("value")) {
    BOWLINE_TRY_ASSIGN(value, c.tensor("value"));
    BOWLINE_REQUIRE_CODE(value.elements() == 1, Code::bad_file,
                         "Attribute value has {} elements, not 1.", value.elements());
    value.shape.clear();
  }
  const DType dtype = value.dtype;
  const Term one = c.m.constant(std::move(value));
  BOWLINE_TRY_ASSIGN(const int64_t elements, elements_of(dims));
  if (elements == 0) {
    ConstantTensor none;
    none.dtype = dtype;
    none.shape = dims;
    c.out(0, c.m.constant(std::move(none)));
    return {};
  }
  c.out(0, c.m.expand(one, dims));
  return {};
}

// Returns dims [start, end) of the input.
Status shape(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  const auto rank = static_cast<int64_t>(x.rank());
  BOWLINE_TRY_ASSIGN(int64_t start, c.integer("start", 0));
  BOWLINE_TRY_ASSIGN(int64_t end, c.integer("end", rank));
  const auto inside = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? std::max(i, -rank) + rank : i, 0, rank);
  };
  start = inside(start);
  end = std::max(inside(end), start);
  const Dims dims(x.dims.begin() + start, x.dims.begin() + end);
  c.out(0, c.m.sizes({end - start}, dims));
  return {};
}

Status size(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.sizes({}, {x.elements()}));
  return {};
}

Status range(Context& c) {
  double begin = 0, end = 0, step = 0;
  DType dtype = DType::f32;
  c.ignore("stash_type");  // the values are computed in f64
  for (size_t i = 0; i < 3; ++i) {
    BOWLINE_TRY_ASSIGN(const ConstantTensor number, c.numbers(i));
    BOWLINE_REQUIRE_CODE(number.elements() == 1, Code::bad_file, "Input {} has {} elements.", i,
                         number.elements());
    dtype = number.dtype;
    (i == 0 ? begin : i == 1 ? end : step) = number.reals()[0];
  }
  const bool exact = std::max({std::abs(begin), std::abs(end), std::abs(step)}) <= 0x1p53;
  BOWLINE_REQUIRE_CODE(is_float(dtype) || exact, Code::unsupported,
                       "From {} to {} in steps of {}: integers beyond 2^53 are not supported.",
                       begin, end, step);
  const double count = std::max(std::ceil((end - begin) / step), 0.0);
  BOWLINE_REQUIRE_CODE(count <= static_cast<double>(kMostComputed), Code::unsupported,
                       "The range from {} to {} in steps of {} has too many values.", begin, end,
                       step);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = begin + static_cast<double>(i) * step;
  }
  c.out(0, c.m.constant(ConstantTensor::of(dtype, {static_cast<int64_t>(values.size())}, values)));
  return {};
}

// Mask of a matrix: row + k <= column.
Result<ConstantTensor> triangle(int64_t rows, int64_t columns, int64_t k, bool diagonal_only) {
  BOWLINE_REQUIRE_CODE(rows * columns <= kMostComputed, Code::unsupported,
                       "A mask of {} by {} is too large.", rows, columns);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t distance = j - i;
      values.push_back((diagonal_only ? distance == k : distance >= k) ? 1 : 0);
    }
  }
  return ConstantTensor::of(DType::boolean, {rows, columns}, values);
}

Status eye_like(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t k, c.integer("k", 0));
  DType dtype = x.dtype;
  if (c.has_attribute("dtype")) {
    BOWLINE_TRY_ASSIGN(const int64_t number, c.integer("dtype", 0));
    BOWLINE_REQUIRE_CODE(number >= 0 && number < 100, Code::bad_file,
                         "Attribute dtype is {}, which is not a dtype of ONNX.", number);
    BOWLINE_TRY_ASSIGN(dtype, dtype_of(static_cast<int32_t>(number)));
  }
  BOWLINE_REQUIRE_CODE(x.rank() == 2, Code::bad_file, "{} is not a matrix.", shape_text(x.dims));
  BOWLINE_TRY_ASSIGN(const ConstantTensor mask, triangle(x.dims[0], x.dims[1], k, true));
  c.out(0, c.m.constant(ConstantTensor::of(dtype, x.dims, mask.integers())));
  return {};
}

Status trilu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t upper, c.integer("upper", 1));
  int64_t k = 0;
  if (c.has(1)) {
    BOWLINE_TRY_ASSIGN(const std::vector<int64_t> given, c.integers(1));
    BOWLINE_REQUIRE_CODE(given.size() == 1, Code::bad_file, "Input k has {} elements.",
                         given.size());
    k = std::clamp<int64_t>(given[0], INT32_MIN, INT32_MAX);
  }
  BOWLINE_REQUIRE_CODE(x.rank() >= 2, Code::bad_file, "{} is not a matrix.", shape_text(x.dims));
  if (x.elements() == 0) {
    c.out(0, x);
    return {};
  }
  const int64_t rows = x.dims[x.rank() - 2], columns = x.dims[x.rank() - 1];
  BOWLINE_TRY_ASSIGN(ConstantTensor mask, triangle(rows, columns, upper != 0 ? k : k + 1, false));
  const Term above = c.m.constant(std::move(mask));
  const Term zero = c.m.scalar(x.dtype, 0);
  c.out(0, upper != 0 ? c.m.where(above, x, zero) : c.m.where(above, zero, x));
  return {};
}

constexpr Lowering kShapeLowerings[] = {
    {"Identity", identity},
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Transpose", transpose},
    {"Concat", concat},
    {"Split", split},
    {"Slice", slice},
    {"Pad", pad},
    {"CenterCropPad", center_crop_pad},
    {"Expand", expand},
    {"Tile", tile},
    {"DepthToSpace", depth_to_space},
    {"SpaceToDepth", space_to_depth},
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"Shape", shape},
    {"Size", size},
    {"Range", range},
    {"EyeLike", eye_like},
    {"Trilu", trilu},
};

}  // namespace

std::span<const Lowering> lowerings_of_shape() { return kShapeLowerings; }

}  // namespace bowline::onnx
