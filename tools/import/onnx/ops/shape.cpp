// Operators that change shape, order or position of elements, and operators that read shapes.
#include <algorithm>

#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A trained parameter with equal elements, such as the ones and zeros of a new normalization layer.
bool is_uniform_weight(const Term& x) {
  const bool own = x.constant() && x.source->kept && x.source->later == nullptr;
  return own && x.elements() >= 2 && x.numbers()->is_uniform();
}

// PyTorch writes equal weights once, with an Identity for each copy. A weight with equal elements
// may be equal by chance, so each copy trains separately. All others are tied.
Term identity(Context& c) {
  const Term x = c.in(0);
  return is_uniform_weight(x) ? c.m.weight(*x.numbers(), c.node().output(0), c.readers(0)) : x;
}

// Returns the shape of a Reshape: 0 keeps the dim (unless allow_zero), -1 is inferred.
Dims reshaped_dims(const Dims& from, const std::vector<int64_t>& wanted, bool allow_zero) {
  Dims dims = wanted;
  int64_t open = -1;
  int64_t rest = 1;
  for (size_t a = 0; a < dims.size(); ++a) {
    require(dims[a] >= -1, "Dim {} is {}.", a, dims[a]);
    if (dims[a] == 0 && !allow_zero) {
      require(a < from.size(), "Dim {} keeps the size of an axis that {} does not have.", a, from);
      dims[a] = from[a];
    }
    if (dims[a] == -1) {
      require(open < 0, "Two dims of {} are -1.", dims);
      open = static_cast<int64_t>(a);
      continue;
    }
    require(dims[a] == 0 || rest <= kMostElements / dims[a], "Shape {} has too many elements.",
            dims);
    rest *= dims[a];
  }
  if (open >= 0) {
    const int64_t elements = from.product();
    require(rest != 0 && elements % rest == 0, "Shape {} does not fit {}.", dims, from);
    dims[open] = elements / rest;
  }
  return dims;
}

// If the graph was exported for one row, a shape that does not depend on the batch size is the
// shape of a row.
Term reshape(Context& c) {
  const Term x = c.in(0);
  const std::vector<int64_t> wanted = c.list_or_input("shape", 1);
  const bool allow_zero = c.flag("allowzero", false);
  const bool of_rows = c.m.has_rows_of_one(x) && !c.m.follows_from_batch(wanted);
  const Dims dims = reshaped_dims(of_rows ? c.m.row_dims(x) : x.dims, wanted, allow_zero);
  return of_rows ? c.m.reshape_rows(x, dims) : c.m.reshape(x, dims);
}

Term flatten(Context& c) {
  const Term x = c.in(0);
  int64_t axis = c.integer("axis", 1);
  axis += axis < 0 ? static_cast<int64_t>(x.rank()) : 0;
  require(axis >= 0 && axis <= static_cast<int64_t>(x.rank()), "Axis {} is out of range for {}.",
          axis, x.dims);
  const auto at = static_cast<size_t>(axis);
  return c.m.reshape(x, {x.dims.part(0, at).product(), x.dims.part(at, x.rank()).product()});
}

Term squeeze(Context& c) {
  const Term x = c.in(0);
  const std::vector<int64_t> axes = c.list_or_input("axes", 1);
  const bool all = !c.has(1) && !c.has_attribute("axes");
  const Dims row = c.m.row_dims(x);
  std::vector<bool> gone(x.rank());
  for (size_t a = 0; a < x.rank(); ++a) {
    gone[a] = all && row[a] == 1;
  }
  for (const int64_t given : axes) {
    const int64_t a = axis_of(given, x.rank());
    require(row[a] == 1, "Axis {} of {} does not have size 1.", a, x.dims);
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
  return without_batch ? c.m.reshape_rows(x, row_left) : c.m.reshape(x, dims);
}

Term unsqueeze(Context& c) {
  const Term x = c.in(0);
  const std::vector<int64_t> axes = c.list_or_input("axes", 1);
  const size_t rank = x.rank() + axes.size();
  support(rank <= kMostRank, "The result has {} axes.", rank);
  std::vector<bool> added(rank);
  for (const int64_t given : axes) {
    const int64_t a = axis_of(given, rank);
    require(!added[static_cast<size_t>(a)], "Axis {} is added twice.", a);
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
  return shared ? c.m.reshape_rows(x, dims) : c.m.reshape(x, dims);
}

Term transpose(Context& c) {
  const Term x = c.in(0);
  std::vector<int64_t> permutation = c.list("perm");
  if (!c.has_attribute("perm")) {
    permutation = all_axes(x.rank());
    std::ranges::reverse(permutation);
  }
  return c.m.transpose(x, permutation);
}

Term concat(Context& c) {
  Terms parts;
  for (size_t i = 0; i < c.inputs(); ++i) {
    parts.push_back(c.in(i));
  }
  return c.m.concat(parts, c.integer("axis", 1));
}

Term split(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(x.rank(), 0);
  std::vector<int64_t> sizes = c.list_or_input("split", 1);
  const int64_t dim = x.dims[axis];
  const auto count = static_cast<int64_t>(c.outputs());
  require(count > 0, "The node has no outputs.");
  // From operator set 18 on the last part may be smaller.
  const int64_t parts_wanted = c.integer("num_outputs", count);
  require(parts_wanted == count, "Attribute \"num_outputs\" is {}, but the node has {} outputs.",
          parts_wanted, count);
  if (sizes.empty()) {
    require(c.opset >= 18 || dim % count == 0, "Axis {} of {} cannot be split into {} equal parts.",
            axis, x.dims, count);
    const int64_t size = (dim + count - 1) / count;
    sizes.assign(c.outputs(), size);
    sizes.back() = dim - size * (count - 1);
  }
  require(sizes.size() == c.outputs(), "The node has {} sizes, but {} outputs.", sizes.size(),
          c.outputs());
  const Terms parts = c.m.split(x, axis, sizes);
  for (size_t i = 1; i < parts.size(); ++i) {
    c.out(i, parts[i]);
  }
  return parts[0];
}

// Elements start, start + step, .. before end. An out-of-range start is clamped to the first or
// last element, even where Python returns nothing: x[-9:-9:-1] of four elements returns the first.
Term strided(Context& c, const Term& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  const bool of_row = c.m.is_axis_of_one(x, axis);
  const int64_t dim = of_row ? 1 : x.dims[axis];
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
  support(dim <= kMostComputed, "An axis of {} is too long for steps of {}.", dim, step);
  std::vector<int64_t> indices;
  step = std::clamp(step, -dim - 1, dim + 1);
  for (int64_t i = from; up ? i < to : i > to; i += step) {
    indices.push_back(i);
  }
  const auto count = static_cast<int64_t>(indices.size());
  return c.m.gather(x, c.m.integers(DType::i32, {count}, indices), axis);
}

Term slice(Context& c) {
  Term x = c.in(0);
  const std::vector<int64_t> starts = c.list_or_input("starts", 1);
  const std::vector<int64_t> ends = c.list_or_input("ends", 2);
  std::vector<int64_t> axes = c.list_or_input("axes", 3);
  std::vector<int64_t> steps(starts.size(), 1);
  steps = c.has(4) ? c.integers(4) : steps;
  axes = axes.empty() ? all_axes(starts.size()) : axes;
  const size_t n = starts.size();
  require(ends.size() == n && axes.size() == n && steps.size() == n,
          "The counts of {} starts, {} ends, {} axes and {} steps differ.", n, ends.size(),
          axes.size(), steps.size());
  for (size_t i = 0; i < n; ++i) {
    const int64_t axis = axis_of(axes[i], x.rank());
    require(steps[i] != 0, "Step {} is 0.", i);
    support(!c.m.follows_from_batch({starts[i], ends[i]}) || c.m.follows_from_batch({x.dims[axis]}),
            "The slice of axis {} depends on the size of the batch.", axis);
    x = strided(c, x, axis, starts[i], ends[i], steps[i]);
  }
  return x;
}

Term expand(Context& c) { return c.m.expand(c.in(0), c.integers(1)); }

Term tile(Context& c) {
  const Term x = c.in(0);
  const std::vector<int64_t> repeats = c.integers(1);
  require(repeats.size() == x.rank(), "{} repeats do not fit {}.", repeats.size(), x.dims);
  require_small("Repeats", repeats);
  Dims dims = x.dims;
  for (size_t a = 0; a < dims.size(); ++a) {
    require(repeats[a] >= 0 && (repeats[a] == 0 || dims[a] <= kMostElements / repeats[a]),
            "Repeat {} is {}.", a, repeats[a]);
    dims[a] *= repeats[a];
  }
  return c.m.op("Tile", {x}, {{"repeats", graph_dims(repeats)}}, x.dtype, dims);
}

// Reshapes x to `dims`, transposes it and reshapes the result.
Term rearranged(Context& c, const Term& x, const Dims& dims,
                const std::vector<int64_t>& permutation, const Dims& result) {
  return c.m.reshape(c.m.transpose(c.m.reshape(x, dims), permutation), result);
}

// Moves blocks between the depth (axis 1) and the last two axes.
Term depth_to_space(Context& c) {
  const Term x = c.in(0);
  const int64_t b = c.integer("blocksize", 0);
  const std::string mode = c.text("mode", "DCR");
  require(x.rank() == 4 && b > 0 && b <= 32768 && x.dims[1] % (b * b) == 0,
          "{} cannot be split into blocks of {}.", x.dims, b);
  const int64_t n = x.dims[0], d = x.dims[1] / (b * b), h = x.dims[2], w = x.dims[3];
  const Dims result = {n, d, h * b, w * b};
  return mode == "DCR" ? rearranged(c, x, {n, b, b, d, h, w}, {0, 3, 4, 1, 5, 2}, result)
                       : rearranged(c, x, {n, d, b, b, h, w}, {0, 1, 4, 2, 5, 3}, result);
}

Term space_to_depth(Context& c) {
  const Term x = c.in(0);
  const int64_t b = c.integer("blocksize", 0);
  const bool fits =
      x.rank() == 4 && b > 0 && b <= 32768 && x.dims[2] % b == 0 && x.dims[3] % b == 0;
  require(fits, "{} cannot be split into blocks of {}.", x.dims, b);
  const std::string mode = c.choice("mode", "DCR", "DCR CRD", "Mode");
  const int64_t n = x.dims[0], d = x.dims[1], h = x.dims[2] / b, w = x.dims[3] / b;
  const std::vector<int64_t> dcr = {0, 3, 5, 1, 2, 4}, crd = {0, 1, 3, 5, 2, 4};
  return rearranged(c, x, {n, d, h, b, w, b}, mode == "DCR" ? dcr : crd, {n, d * b * b, h, w});
}

// Returns dims [start, end) of the input.
Term shape(Context& c) {
  const Term x = c.in(0);
  const auto rank = static_cast<int64_t>(x.rank());
  int64_t start = c.integer("start", 0);
  int64_t end = c.integer("end", rank);
  const auto inside = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? std::max(i, -rank) + rank : i, 0, rank);
  };
  start = inside(start);
  end = std::max(inside(end), start);
  return c.m.sizes({end - start}, {x.dims.begin() + start, x.dims.begin() + end});
}

Term size(Context& c) { return c.m.sizes({}, {c.in(0).elements()}); }

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
    {"Expand", expand},
    {"Tile", tile},
    {"DepthToSpace", depth_to_space},
    {"SpaceToDepth", space_to_depth},
    {"Shape", shape},
    {"Size", size},
};

}  // namespace

std::span<const Lowering> lowerings_of_shape() { return kShapeLowerings; }

}  // namespace bowline::onnx
