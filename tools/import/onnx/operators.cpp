// The operators that a Maker adds: dtypes, shapes and folding of each.
#include <algorithm>

#include "onnx/fold.h"
#include "onnx/maker.h"

namespace bowline::onnx {
namespace {

void check_dims(const Dims& dims) { require(elements_of(dims).status()); }

void require_same_dtype(std::string_view op, const Term& a, const Term& b) {
  require(a.dtype == b.dtype, "The operands of {} have the dtypes {} and {}.", op, a.dtype,
          b.dtype);
}

Maker& maker_of(const Term& term) {
  require(term.source != nullptr, "A required input of the operator is missing.");
  return *term.source->maker;
}

Maker& maker_of(const Operand& a, const Operand& b) {
  return maker_of(a.term() != nullptr ? *a.term() : *b.term());
}

// Returns the operand. A number becomes a scalar of the dtype of `other`.
Term term_of(const Operand& operand, const Operand& other) {
  return operand.term() != nullptr ? *operand.term() : scalar_like(*other.term(), operand.number());
}

}  // namespace

Term unary(std::string_view op, const Term& x, const std::vector<Attribute>& attributes) {
  return maker_of(x).unary(op, x, attributes);
}
Term binary(std::string_view op, const Operand& a, const Operand& b) {
  return maker_of(a, b).binary(op, a, b);
}
Term compare(std::string_view op, const Operand& a, const Operand& b) {
  return maker_of(a, b).compare(op, a, b);
}
Term where(const Term& condition, const Operand& a, const Operand& b) {
  return maker_of(condition).where(condition, a, b);
}
Term cast(const Term& x, DType dtype) { return maker_of(x).cast(x, dtype); }
Term scalar_like(const Term& x, double number) { return maker_of(x).scalar(x.dtype, number); }

int64_t axis_of(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  require(axis >= -r && axis < r, "Axis {} is out of range for a tensor with {} axes.", axis, rank);
  return axis < 0 ? axis + r : axis;
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    require(x == y || x == 1 || y == 1, "Shapes {} and {} do not broadcast.", a, b);
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Term Maker::unary(std::string_view op, const Term& x, const std::vector<Attribute>& attributes) {
  return known_or(attributes.empty() ? fold::unary(op, x) : std::nullopt, op, {x}, attributes,
                  x.dtype, x.dims);
}

Term Maker::binary(std::string_view op, const Operand& left, const Operand& right) {
  const Term a = term_of(left, right), b = term_of(right, left);
  const Dims dims = broadcast(a.dims, b.dims);
  require_same_dtype(op, a, b);
  return known_or(fold::binary(op, a, b, dims), op, {a, b}, {}, a.dtype, dims);
}

Term Maker::compare(std::string_view op, const Operand& left, const Operand& right) {
  const Term a = term_of(left, right), b = term_of(right, left);
  const Dims dims = broadcast(a.dims, b.dims);
  require_same_dtype(op, a, b);
  return known_or(fold::compare(op, a, b, dims), op, {a, b}, {}, DType::boolean, dims);
}

Term Maker::where(const Term& condition, const Operand& left, const Operand& right) {
  const Term a = term_of(left, right), b = term_of(right, left);
  const Dims two = broadcast(a.dims, b.dims);
  require_same_dtype("Where", a, b);
  const Dims dims = broadcast(condition.dims, two);
  return known_or(fold::where(condition, a, b, dims), "Where", {condition, a, b}, {}, a.dtype,
                  dims);
}

Term Maker::cast(const Term& x, DType dtype) {
  if (x.dtype == dtype) {
    return x;
  }
  return known_or(fold::cast(x, dtype), "Cast", {x}, {{"to", name_in_cast(dtype)}}, dtype, x.dims);
}

Term Maker::reshape(const Term& x, const Dims& dims) {
  if (dims == x.dims) {
    return x;
  }
  check_dims(dims);
  require(dims.product() == x.elements(), "Shape {} does not have the {} elements of shape {}.",
          dims, x.elements(), x.dims);
  return known_or(fold::reshape(x, dims), "Reshape", {x}, {{"dims", graph_dims(dims)}}, x.dtype,
                  dims);
}

Term Maker::transpose(const Term& x, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> axes = permutation;
  std::ranges::sort(axes);
  require(axes == all_axes(x.rank()), "{} is not a permutation of the axes of {}.", permutation,
          x.dims);
  if (permutation == axes) {
    return x;
  }
  Dims dims;
  for (const int64_t from : permutation) {
    dims.push_back(x.dims[from]);
  }
  return known_or(fold::transpose(x, permutation, dims), "Transpose", {x},
                  {{"permutation", graph_dims(permutation)}}, x.dtype, dims);
}

Term Maker::slice(const Term& x, int64_t given, int64_t start, int64_t length) {
  const int64_t axis = axis_of(given, x.rank());
  const int64_t dim = x.dims[axis];
  require(start >= 0 && start <= dim && length >= 0 && length <= dim - start,
          "Elements {} to {} are out of range for axis {} of {}.", start, length, given, x.dims);
  if (length == dim) {
    return x;
  }
  const Dims dims = x.dims.with(axis, length);
  return known_or(fold::slice(x, axis, start, dims), "Slice", {x},
                  {{"axis", axis}, {"start", start}, {"length", length}}, x.dtype, dims);
}

Term Maker::concat(const Terms& given, int64_t given_axis) {
  require(!given.empty(), "There is nothing to concatenate.");
  const int64_t axis = axis_of(given_axis, given[0].rank());
  const Terms parts = with_same_rows(given);
  Dims dims = parts[0].dims;
  for (size_t k = 1; k < parts.size(); ++k) {
    require_same_dtype("Concat", parts[0], parts[k]);
    Dims like = parts[k].dims;  // equals dims if the part fits
    const int64_t more = like.size() == dims.size() ? std::exchange(like[axis], dims[axis]) : 0;
    require(like == dims, "Shapes {} and {} cannot be concatenated along axis {}.", dims,
            parts[k].dims, given_axis);
    dims[axis] += more;
    check_dims(dims);
  }
  if (parts.size() == 1) {
    return parts[0];
  }
  return known_or(fold::concat(parts, axis, dims), "Concat", parts, {{"axis", axis}},
                  parts[0].dtype, dims);
}

Terms Maker::split(const Term& x, int64_t given, const std::vector<int64_t>& sizes) {
  const int64_t axis = axis_of(given, x.rank());
  int64_t left = x.dims[axis];
  bool legal = true;
  std::vector<std::pair<DType, Dims>> outputs;
  for (const int64_t size : sizes) {
    legal = legal && size >= 0 && size <= left;
    left -= legal ? size : 0;
    outputs.emplace_back(x.dtype, x.dims.with(axis, size));
  }
  require(legal && left == 0, "The sizes {} do not add up to axis {} of {}.", sizes, given, x.dims);
  if (x.constant()) {
    Terms out;
    int64_t start = 0;
    for (const int64_t size : sizes) {
      out.push_back(slice(x, axis, start, size));
      start += size;
    }
    return out;
  }
  return ops("Split", {x}, {{"axis", axis}, {"sizes", graph_dims(sizes)}}, outputs);
}

Term Maker::expand(const Term& x, const Dims& wanted) {
  check_dims(wanted);
  const Dims dims = broadcast(x.dims, wanted);
  if (dims == x.dims) {
    return x;
  }
  return known_or(follows_from_batch(dims) ? std::nullopt : fold::expand(x, dims), "Expand", {x},
                  {{"dims", graph_dims(dims)}}, x.dtype, dims);
}

Term Maker::pad(const Term& x, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                const std::vector<Attribute>& more) {
  Dims dims = x.dims;
  for (size_t a = 0; a < dims.size(); ++a) {
    dims[a] += begin[a] + end[a];
  }
  if (dims == x.dims) {
    return x;
  }
  std::vector<Attribute> attributes = {{"begin", graph_dims(begin)}, {"end", graph_dims(end)}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  return op("Pad", {x}, attributes, x.dtype, dims);
}

Term Maker::along(const Term& x, int64_t axis, size_t rank) {
  return reshape(x, Dims(rank, 1).with(axis, x.elements()));
}

Term Maker::at(const Term& x, int64_t axis, int64_t i) {
  return reshape(slice(x, axis, i, 1), x.dims.without(axis_of(axis, x.rank())));
}

Term Maker::stack(Terms parts, int64_t axis) {
  for (Term& part : parts) {
    part = reshape(part, part.dims.inserted(axis, {1}));
  }
  return concat(parts, axis);
}

Term Maker::gather(const Term& x, const Term& indices, int64_t given) {
  const int64_t axis = axis_of(given, x.rank());
  const Dims dims = x.dims.without(axis).inserted(axis, indices.dims);
  return known_or(fold::gather(x, indices, axis, dims), "Gather", {x, indices}, {{"axis", axis}},
                  x.dtype, dims);
}

Term Maker::reduce(std::string_view op, const Term& x, const std::vector<int64_t>& axes,
                   bool keep) {
  if (axes.empty()) {
    return x;
  }
  std::vector<bool> gone(x.rank());
  std::vector<int64_t> list;
  for (const int64_t given : axes) {
    const int64_t axis = axis_of(given, x.rank());
    if (!gone[static_cast<size_t>(axis)]) {
      list.push_back(axis);
    }
    gone[static_cast<size_t>(axis)] = true;
  }
  Dims dims;
  for (size_t a = 0; a < x.rank(); ++a) {
    if (!gone[a] || keep) {
      dims.push_back(gone[a] ? 1 : x.dims[a]);
    }
  }
  return known_or(fold::reduce(op, x, list, dims), op, {x},
                  {{"axes", graph_dims(list)}, {"keep_dims", keep}}, x.dtype, dims);
}

Term Maker::matmul(const Term& a, const Term& b, bool transpose_a, bool transpose_b) {
  const size_t m = a.rank() - 2, n = b.rank() - 2;
  require(a.rank() >= 2 && b.rank() >= 2, "{} and {} are not matrices.", a.dims, b.dims);
  Dims dims = broadcast(a.dims.part(0, m), b.dims.part(0, n));
  require_same_dtype("MatMul", a, b);
  require(a.dims[m + (transpose_a ? 0 : 1)] == b.dims[n + (transpose_b ? 1 : 0)],
          "The inner dims of {} and {} differ.", a.dims, b.dims);
  dims.push_back(a.dims[m + (transpose_a ? 1 : 0)]);
  dims.push_back(b.dims[n + (transpose_b ? 0 : 1)]);
  return op("MatMul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}, a.dtype,
            dims);
}

}  // namespace bowline::onnx
