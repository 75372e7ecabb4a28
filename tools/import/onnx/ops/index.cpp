// Operators that select elements by index.
#include <algorithm>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// True if the indices select the only element of an axis, once.
bool is_first(const Term& indices) {
  const ConstantTensor* const n = indices.numbers();
  return n != nullptr && n->elements() == 1 && (n->integers()[0] == 0 || n->integers()[0] == -1);
}

Status gather(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term indices, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 0));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  if (c.m.is_axis_of_one(x, axis) && is_first(indices)) {
    Dims row = c.m.row_dims(x);
    row.erase(row.begin() + axis);
    row.insert(row.begin() + axis, indices.dims.begin(), indices.dims.end());
    c.out(0, c.m.reshape_rows(x, row));
    return {};
  }
  c.out(0, c.m.gather(x, i32_indices(c, indices, x.dims[static_cast<size_t>(axis)]), axis));
  return {};
}

Status gather_elements(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term indices, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 0));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  const Terms in =
      c.m.with_same_rows({x, i32_indices(c, indices, x.dims[static_cast<size_t>(axis)])});
  c.out(0, c.m.op("GatherElements", in, {{"axis", axis}}, x.dtype, in[1].dims));
  return {};
}

// How several updates of one element combine. ONNX and Bowline use the same words.
Result<std::string> reduction_of(Context& c) {
  BOWLINE_TRY_ASSIGN(std::string reduction, c.text("reduction", "none"));
  constexpr std::string_view kReductions[] = {"none", "add", "mul", "max", "min"};
  BOWLINE_REQUIRE_CODE(std::ranges::find(kReductions, reduction) != std::end(kReductions),
                       Code::unsupported, "Reduction \"{}\" is not supported.", escaped(reduction));
  return reduction;
}

Status scatter_elements(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term indices, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term updates, c.in(2));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 0));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  BOWLINE_TRY_ASSIGN(const std::string reduction, reduction_of(c));
  const Terms in =
      c.m.with_same_rows({x, i32_indices(c, indices, x.dims[static_cast<size_t>(axis)]), updates});
  c.out(0, c.m.op("ScatterElements", in, {{"axis", axis}, {"reduction", reduction}}, x.dtype,
                  in[0].dims));
  return {};
}

struct Cells {
  Term flat;          // i32 index of each cell
  int64_t count = 1;  // number of cells in the data
  int64_t size = 1;   // elements per cell
  Dims outer;         // dims of the indices without the last axis
};

// Each row of the last axis of `indices` selects a cell of `x` by its first axes. Both start with
// `batch` common axes.
Result<Cells> cells_of(Context& c, const Term& x, const Term& indices, size_t batch) {
  BOWLINE_REQUIRE_CODE(indices.rank() > batch, Code::bad_file, "Indices {} have too few axes.",
                       shape_text(indices.dims));
  const int64_t depth = indices.dims.back();
  const bool fits =
      depth >= 1 && depth + static_cast<int64_t>(batch) <= static_cast<int64_t>(x.rank());
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Indices {} do not fit {}.", shape_text(indices.dims),
                       shape_text(x.dims));
  Cells out;
  out.outer.assign(indices.dims.begin(), indices.dims.end() - 1);
  const auto last = static_cast<int64_t>(indices.rank()) - 1;
  Term inside;  // true if every part of an index is in range
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t dim = x.dims[batch + static_cast<size_t>(k)];
    const Term part = c.m.reshape(c.m.slice(indices, last, k, 1), out.outer);
    const Term i = positive_indices(c, part, dim);
    out.flat = k == 0 ? i : c.m.add(c.m.mul(out.flat, static_cast<double>(dim)), i);
    out.count *= dim;
    const Term least = c.m.binary("Max", i, c.m.scalar(DType::i32, 0));
    const Term nearest =
        c.m.binary("Min", least, c.m.scalar(DType::i32, static_cast<double>(dim - 1)));
    const Term fits_axis = c.m.compare("Equal", i, nearest);
    inside = k == 0 ? fits_axis : c.m.binary("And", inside, fits_axis);
  }
  for (size_t a = batch + static_cast<size_t>(depth); a < x.rank(); ++a) {
    out.size *= x.dims[a];
  }
  // The batches are stored one after the other.
  int64_t batches = 1;
  for (size_t a = batch; a-- > 0;) {
    BOWLINE_REQUIRE_CODE(x.dims[a] == indices.dims[a], Code::bad_file,
                         "Batches of {} and {} differ.", shape_text(x.dims),
                         shape_text(indices.dims));
    Dims dims(indices.rank() - 1, 1);
    dims[a] = x.dims[a];
    const Term number = c.m.reshape(c.m.count(DType::i32, x.dims[a]), dims);
    out.flat = c.m.add(out.flat, c.m.mul(number, static_cast<double>(out.count * batches)));
    batches *= x.dims[a];
  }
  out.count *= batches;
  // An out-of-range part could name a cell of another row. The whole index is then set out of
  // range, which the operator reports.
  out.flat = c.m.where(inside, out.flat, c.m.scalar(DType::i32, INT32_MIN));
  BOWLINE_REQUIRE_CODE(out.count <= INT32_MAX, Code::unsupported, "{} has more than {} cells.",
                       shape_text(x.dims), INT32_MAX);
  return out;
}

Status gather_nd(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term indices, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t batch, c.integer("batch_dims", 0));
  BOWLINE_REQUIRE_CODE(batch >= 0 && batch < static_cast<int64_t>(x.rank()), Code::bad_file,
                       "Attribute batch_dims is {}, and x has {} axes.", batch, x.rank());
  BOWLINE_TRY_ASSIGN(const Cells cells, cells_of(c, x, indices, static_cast<size_t>(batch)));
  Dims dims = cells.outer;
  dims.insert(dims.end(), x.dims.begin() + batch + indices.dims.back(), x.dims.end());
  const Term table = c.m.reshape(x, {cells.count, cells.size});
  c.out(0, c.m.reshape(c.m.gather(table, cells.flat, 0), dims));
  return {};
}

Status scatter_nd(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term indices, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term updates, c.in(2));
  BOWLINE_TRY_ASSIGN(const std::string reduction, reduction_of(c));
  BOWLINE_TRY_ASSIGN(const Cells cells, cells_of(c, x, indices, 0));
  const int64_t rows = cells.flat.elements();
  const Term i = c.m.reshape(cells.flat, {rows, 1});
  const Term y = c.m.op(
      "ScatterElements",
      {c.m.reshape(x, {cells.count, cells.size}), i, c.m.reshape(updates, {rows, cells.size})},
      {{"axis", 0}, {"reduction", reduction}}, x.dtype, {cells.count, cells.size});
  c.out(0, c.m.reshape(y, x.dims));
  return {};
}

// values = [off, on], of any dtype. `on` is at the index along the new axis. An out-of-range index
// gets no `on`.
Status one_hot(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term indices, c.in(0));
  BOWLINE_TRY_ASSIGN(const ConstantTensor depth_numbers, c.numbers(1));
  BOWLINE_TRY_ASSIGN(const Term values, c.in(2));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", -1));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, indices.rank() + 1));
  BOWLINE_REQUIRE_CODE(depth_numbers.elements() == 1 && values.dims == Dims{2}, Code::bad_file,
                       "Depth has {} elements, values have the shape {}.", depth_numbers.elements(),
                       shape_text(values.dims));
  const double given_depth = depth_numbers.reals()[0];  // may be NaN
  BOWLINE_REQUIRE_CODE(given_depth >= 0 && given_depth <= static_cast<double>(kMostComputed),
                       Code::unsupported, "Depth {} is outside of 0 to {}.", given_depth,
                       kMostComputed);
  const auto depth = static_cast<int64_t>(given_depth);
  const Term i = positive_indices(c, indices, depth);
  Dims dims = i.dims;
  dims.insert(dims.begin() + axis, 1);
  Dims places(dims.size(), 1);
  places[static_cast<size_t>(axis)] = depth;
  const Term hit =
      c.m.compare("Equal", c.m.reshape(i, dims), c.m.reshape(c.m.count(DType::i32, depth), places));
  const Term off = c.m.reshape(c.m.slice(values, 0, 0, 1), {});
  const Term on = c.m.reshape(c.m.slice(values, 0, 1, 1), {});
  c.out(0, c.m.where(hit, on, off));
  return {};
}

// Returns [rank, count]: the positions of the non-zero elements. The count depends on the values,
// so they must be known.
Status non_zero(Context& c) {
  BOWLINE_TRY_ASSIGN(const ConstantTensor x, c.numbers(0));
  const std::vector<double> values = x.reals();
  std::vector<int64_t> places;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) {
      places.push_back(static_cast<int64_t>(i));
    }
  }
  std::vector<int64_t> out;
  int64_t inner = static_cast<int64_t>(values.size());
  for (const int64_t dim : x.shape) {
    inner /= std::max<int64_t>(dim, 1);
    for (const int64_t place : places) {
      out.push_back(place / inner % dim);
    }
  }
  c.out(0, c.m.integers(DType::i64,
                        {static_cast<int64_t>(x.shape.size()), static_cast<int64_t>(places.size())},
                        out));
  return {};
}

// The number of selected elements depends on the condition, so the condition must be known.
Status compress(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> condition, c.integers(1));
  int64_t axis = 0;
  if (c.has_attribute("axis")) {
    BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 0));
    BOWLINE_TRY_ASSIGN(axis, axis_of(given, x.rank()));
  } else {
    x = c.m.reshape(x, {x.elements()});
  }
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) {
      chosen.push_back(static_cast<int64_t>(i));
    }
  }
  const bool inside = chosen.empty() || chosen.back() < x.dims[static_cast<size_t>(axis)];
  BOWLINE_REQUIRE_CODE(inside, Code::bad_file, "The condition is longer than axis {} of {}.", axis,
                       shape_text(x.dims));
  const auto count = static_cast<int64_t>(chosen.size());
  c.out(0, c.m.gather(x, c.m.integers(DType::i32, {count}, chosen), axis));
  return {};
}

// Reverses the first elements of each row, with an index for each row and time step.
Status reverse_sequence(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term lengths, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t time, c.integer("time_axis", 0));
  BOWLINE_TRY_ASSIGN(const int64_t batch, c.integer("batch_axis", 1));
  const bool fits = x.rank() >= 2 && ((time == 0 && batch == 1) || (time == 1 && batch == 0)) &&
                    lengths.dims == Dims{x.dims[static_cast<size_t>(batch)]};
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Lengths {} do not fit {}.", shape_text(lengths.dims),
                       shape_text(x.dims));
  const int64_t steps = x.dims[static_cast<size_t>(time)];
  Dims along(x.rank(), 1), across(x.rank(), 1);
  along[static_cast<size_t>(time)] = steps;
  across[static_cast<size_t>(batch)] = x.dims[static_cast<size_t>(batch)];
  const Term t = c.m.reshape(c.m.count(DType::i32, steps), along);
  const Term n = c.m.reshape(c.m.cast(lengths, DType::i32), across);
  const Term back = c.m.add(c.m.sub(n, t), -1);
  const Term place = c.m.where(c.m.compare("Less", t, n), back, t);
  const Term i = c.m.expand(place, x.dims);
  c.out(0, c.m.op("GatherElements", {x, i}, {{"axis", time}}, x.dtype, x.dims));
  return {};
}

// Writes `updates` into the cache from a start index per batch row. Circular: the index wraps
// around at the end.
Status tensor_scatter(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term cache, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term updates, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", -2));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, cache.rank()));
  BOWLINE_TRY_ASSIGN(const std::string mode, c.text("mode", "linear"));
  BOWLINE_REQUIRE_CODE(mode == "linear" || mode == "circular", Code::unsupported,
                       "Mode \"{}\" is not supported.", escaped(mode));
  const auto a = static_cast<size_t>(axis);
  const bool ranks = updates.rank() == cache.rank() && axis >= 1;
  BOWLINE_REQUIRE_CODE(ranks && updates.dims[a] <= cache.dims[a], Code::bad_file,
                       "Updates {} do not fit axis {} of {}.", shape_text(updates.dims), axis,
                       shape_text(cache.dims));
  const int64_t rows = cache.dims[a];
  Dims along(cache.rank(), 1), batch(cache.rank(), 1);
  along[a] = updates.dims[a];
  batch[0] = cache.dims[0];
  Term place = c.m.reshape(c.m.count(DType::i32, updates.dims[a]), along);
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const Term first, c.in(2));
    BOWLINE_REQUIRE_CODE(first.dims == Dims{cache.dims[0]}, Code::bad_file,
                         "Write indices {} do not fit {}.", shape_text(first.dims),
                         shape_text(cache.dims));
    place = c.m.add(place, c.m.reshape(c.m.cast(first, DType::i32), batch));
  }
  if (mode == "circular") {
    const Term size = c.m.scalar(DType::i32, static_cast<double>(rows));
    place = c.m.sub(place, c.m.mul(c.m.div(place, size), size));
  }
  c.out(0, c.m.op("ScatterElements", {cache, c.m.expand(place, updates.dims), updates},
                  {{"axis", axis}}, cache.dtype, cache.dims));
  return {};
}

constexpr Lowering kIndexLowerings[] = {
    {"Gather", gather},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"Scatter", scatter_elements},
    {"ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd},
    {"TensorScatter", tensor_scatter},
    {"OneHot", one_hot},
    {"NonZero", non_zero},
    {"Compress", compress},
    {"ReverseSequence", reverse_sequence},
};

}  // namespace

std::span<const Lowering> lowerings_of_index() { return kIndexLowerings; }

}  // namespace bowline::onnx
