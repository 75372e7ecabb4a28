// Operators that select elements by index.
#include <algorithm>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// True if the indices select the only element of an axis, once.
bool is_first(const Term& indices) {
  const ConstantTensor* const n = indices.numbers();
  return n != nullptr && n->elements() == 1 && (n->integers()[0] == 0 || n->integers()[0] == -1);
}

Term gather(Context& c) {
  const Term x = c.in(0), indices = c.in(1);
  const int64_t axis = c.axis(x.rank(), 0);
  if (c.m.is_axis_of_one(x, axis) && is_first(indices)) {
    return c.m.reshape_rows(x, c.m.row_dims(x).without(axis).inserted(axis, indices.dims));
  }
  return c.m.gather(x, i32_indices(indices, x.dims[axis]), axis);
}

Term gather_elements(Context& c) {
  const Term x = c.in(0), indices = c.in(1);
  const int64_t axis = c.axis(x.rank(), 0);
  const Terms in = c.m.with_same_rows({x, i32_indices(indices, x.dims[axis])});
  return c.m.op("GatherElements", in, {{"axis", axis}}, x.dtype, in[1].dims);
}

// How several updates of one element combine. ONNX and Bowline use the same words.
std::string reduction_of(Context& c) {
  return c.choice("reduction", "none", "none add mul max min", "Reduction", Code::unsupported);
}

Term scatter_elements(Context& c) {
  const Term x = c.in(0), indices = c.in(1), updates = c.in(2);
  const int64_t axis = c.axis(x.rank(), 0);
  const std::string reduction = reduction_of(c);
  const Terms in = c.m.with_same_rows({x, i32_indices(indices, x.dims[axis]), updates});
  return c.m.op("ScatterElements", in, {{"axis", axis}, {"reduction", reduction}}, x.dtype,
                in[0].dims);
}

struct Cells {
  Term flat;          // i32 index of each cell
  int64_t count = 1;  // number of cells in the data
  int64_t size = 1;   // elements per cell
  Dims outer;         // dims of the indices without the last axis
};

// Each row of the last axis of `indices` selects a cell of `x` by its first axes. Both start with
// `batch` common axes.
Cells cells_of(Context& c, const Term& x, const Term& indices, size_t batch) {
  require(indices.rank() > batch, "Indices {} have too few axes.", indices.dims);
  const int64_t depth = indices.dims.back();
  const bool fits =
      depth >= 1 && depth + static_cast<int64_t>(batch) <= static_cast<int64_t>(x.rank());
  require(fits, "Indices {} do not fit {}.", indices.dims, x.dims);
  Cells out;
  out.outer.assign(indices.dims.begin(), indices.dims.end() - 1);
  const auto last = static_cast<int64_t>(indices.rank()) - 1;
  Term inside;  // true if every part of an index is in range
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t dim = x.dims[static_cast<int64_t>(batch) + k];
    const Term i = positive_indices(c.m.at(indices, last, k), dim);
    out.flat = k == 0 ? i : out.flat * dim + i;
    out.count *= dim;
    const Term fits_axis = i == min(max(i, 0), dim - 1);
    inside = k == 0 ? fits_axis : inside & fits_axis;
  }
  out.size = x.dims.part(batch + static_cast<size_t>(depth), x.rank()).product();
  // The batches are stored one after the other.
  int64_t batches = 1;
  for (size_t a = batch; a-- > 0;) {
    require(x.dims[a] == indices.dims[a], "Batches of {} and {} differ.", x.dims, indices.dims);
    const Term number = c.m.count_along(static_cast<int64_t>(a), indices.rank() - 1, x.dims[a]);
    out.flat = out.flat + number * (out.count * batches);
    batches *= x.dims[a];
  }
  out.count *= batches;
  // An out-of-range part could name a cell of another row. The whole index is then set out of
  // range, which the operator reports.
  out.flat = where(inside, out.flat, INT32_MIN);
  support(out.count <= INT32_MAX, "{} has more than {} cells.", x.dims, INT32_MAX);
  return out;
}

Term gather_nd(Context& c) {
  const Term x = c.in(0), indices = c.in(1);
  const int64_t batch = c.integer("batch_dims", 0);
  require(batch >= 0 && batch < static_cast<int64_t>(x.rank()),
          "Attribute batch_dims is {}, and x has {} axes.", batch, x.rank());
  const Cells cells = cells_of(c, x, indices, static_cast<size_t>(batch));
  const Dims cell(x.dims.begin() + batch + indices.dims.back(), x.dims.end());
  const Term table = c.m.reshape(x, {cells.count, cells.size});
  return c.m.reshape(c.m.gather(table, cells.flat, 0), cells.outer.joined(cell));
}

Term scatter_nd(Context& c) {
  const Term x = c.in(0), indices = c.in(1), updates = c.in(2);
  const std::string reduction = reduction_of(c);
  const Cells cells = cells_of(c, x, indices, 0);
  const int64_t rows = cells.flat.elements();
  const Term i = c.m.reshape(cells.flat, {rows, 1});
  const Term y = c.m.op(
      "ScatterElements",
      {c.m.reshape(x, {cells.count, cells.size}), i, c.m.reshape(updates, {rows, cells.size})},
      {{"axis", 0}, {"reduction", reduction}}, x.dtype, {cells.count, cells.size});
  return c.m.reshape(y, x.dims);
}

// values = [off, on], of any dtype. `on` is at the index along the new axis. An out-of-range index
// gets no `on`.
Term one_hot(Context& c) {
  const Term indices = c.in(0), values = c.in(2);
  const ConstantTensor depth_numbers = c.numbers(1);
  const int64_t axis = c.axis(indices.rank() + 1, -1);
  require(depth_numbers.elements() == 1 && values.dims == Dims{2},
          "Depth has {} elements, values have the shape {}.", depth_numbers.elements(),
          values.dims);
  const double given_depth = depth_numbers.reals()[0];  // may be NaN
  support(given_depth >= 0 && given_depth <= static_cast<double>(kMostComputed),
          "Depth {} is outside of 0 to {}.", given_depth, kMostComputed);
  const auto depth = static_cast<int64_t>(given_depth);
  const Term i = positive_indices(indices, depth);
  const Term column = c.m.reshape(i, i.dims.inserted(axis, {1}));
  const Term hit = column == c.m.count_along(axis, column.rank(), depth);
  return where(hit, c.m.at(values, 0, 1), c.m.at(values, 0, 0));
}

// Returns the positions of the elements that are not 0.
std::vector<int64_t> places_of(const ConstantTensor& x) {
  std::vector<int64_t> places;
  const std::vector<double> values = x.reals();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) {
      places.push_back(static_cast<int64_t>(i));
    }
  }
  return places;
}

// Returns [rank, count]: the positions of the non-zero elements. The count depends on the values,
// so they must be known.
Term non_zero(Context& c) {
  const ConstantTensor x = c.numbers(0);
  const std::vector<int64_t> places = places_of(x);
  std::vector<int64_t> out;
  auto inner = static_cast<int64_t>(x.elements());
  for (const int64_t dim : x.shape) {
    inner /= std::max<int64_t>(dim, 1);
    for (const int64_t place : places) {
      out.push_back(place / inner % dim);
    }
  }
  return c.m.integers(
      DType::i64, {static_cast<int64_t>(x.shape.size()), static_cast<int64_t>(places.size())}, out);
}

// The number of selected elements depends on the condition, so the condition must be known.
Term compress(Context& c) {
  const bool flat = !c.has_attribute("axis");
  const Term x = flat ? c.m.reshape(c.in(0), {c.in(0).elements()}) : c.in(0);
  const int64_t axis = c.axis(x.rank(), 0);
  c.integers(1);  // refuses floats
  const std::vector<int64_t> chosen = places_of(c.numbers(1));
  const bool inside = chosen.empty() || chosen.back() < x.dims[axis];
  require(inside, "The condition is longer than axis {} of {}.", axis, x.dims);
  const auto count = static_cast<int64_t>(chosen.size());
  return c.m.gather(x, c.m.integers(DType::i32, {count}, chosen), axis);
}

// Reverses the first elements of each row, with an index for each row and time step.
Term reverse_sequence(Context& c) {
  const Term x = c.in(0);
  const Term lengths = c.in(1);
  const int64_t time = c.integer("time_axis", 0);
  const int64_t batch = c.integer("batch_axis", 1);
  const bool fits = x.rank() >= 2 && ((time == 0 && batch == 1) || (time == 1 && batch == 0)) &&
                    lengths.dims == Dims{x.dims[batch]};
  require(fits, "Lengths {} do not fit {}.", lengths.dims, x.dims);
  const Term t = c.m.count_along(time, x.rank(), x.dims[time]);
  const Term n = c.m.along(cast(lengths, DType::i32), batch, x.rank());
  const Term back = n - t - 1;
  const Term place = where(t < n, back, t);
  const Term i = c.m.expand(place, x.dims);
  return c.m.op("GatherElements", {x, i}, {{"axis", time}}, x.dtype, x.dims);
}

// Writes `updates` into the cache from a start index per batch row. Circular: the index wraps
// around at the end.
Term tensor_scatter(Context& c) {
  const Term cache = c.in(0), updates = c.in(1);
  const int64_t axis = c.axis(cache.rank(), -2);
  const std::string mode = c.choice("mode", "linear", "linear circular", "Mode", Code::unsupported);
  const bool ranks = updates.rank() == cache.rank() && axis >= 1;
  require(ranks && updates.dims[axis] <= cache.dims[axis], "Updates {} do not fit axis {} of {}.",
          updates.dims, axis, cache.dims);
  Term place = c.m.count_along(axis, cache.rank(), updates.dims[axis]);
  if (c.has(2)) {
    const Term first = c.in(2);
    require(first.dims == Dims{cache.dims[0]}, "Write indices {} do not fit {}.", first.dims,
            cache.dims);
    place = place + c.m.along(cast(first, DType::i32), 0, cache.rank());
  }
  if (mode == "circular") {
    const Term size = scalar_like(place, static_cast<double>(cache.dims[axis]));
    place = place - place / size * size;
  }
  return c.m.op("ScatterElements", {cache, c.m.expand(place, updates.dims), updates},
                {{"axis", axis}}, cache.dtype, cache.dims);
}

constexpr Lowering kIndexLowerings[] = {
    {"Gather", gather},        {"GatherElements", gather_elements},
    {"GatherND", gather_nd},   {"Scatter ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd}, {"TensorScatter", tensor_scatter},
    {"OneHot", one_hot},       {"NonZero", non_zero},
    {"Compress", compress},    {"ReverseSequence", reverse_sequence},
};

}  // namespace

std::span<const Lowering> lowerings_of_index() { return kIndexLowerings; }

}  // namespace bowline::onnx
