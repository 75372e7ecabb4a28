#include "onnx/maker.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/require.h"
#include "onnx/fold.h"

namespace bowline::onnx {

int64_t Term::elements() const {
  int64_t n = 1;
  for (const int64_t d : dims) {
    n *= d;
  }
  return n;
}

Result<int64_t> axis_of(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  BOWLINE_REQUIRE_CODE(axis >= -r && axis < r, Code::bad_file, "Axis {} lies outside of {} axes.",
                       axis, rank);
  return axis < 0 ? axis + r : axis;
}

Result<Dims> broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    BOWLINE_REQUIRE_CODE(x == y || x == 1 || y == 1, Code::bad_file,
                         "Shapes {} and {} do not broadcast.", shape_text(a), shape_text(b));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

std::vector<GraphDim> graph_dims(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

Maker::Maker(Model& model, const std::string& entry_point)
    : model_(model), graph_(model, entry_point) {}

Term Maker::fail(Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
  }
  Term none;
  none.source = std::make_shared<Source>();
  return none;
}

bool Maker::check(const Status& status) {
  if (!status.ok()) {
    fail(status);
  }
  return status_.ok();
}

bool Maker::check_dims(const Dims& dims) {
  return status_.ok() && check(elements_of(dims).status());
}

Term Maker::input(const std::string& name, DType dtype, const Dims& dims,
                  std::optional<Numbers> given) {
  if (!check_dims(dims)) {
    return fail({});
  }
  Term out{dtype, dims, std::make_shared<Source>()};
  out.source->input = true;
  out.source->name = name;
  out.source->given = given.has_value();
  out.source->numbers = std::move(given);
  return out;
}

Term Maker::constant(Numbers numbers) {
  computed_ += static_cast<int64_t>(numbers.elements());
  if (computed_ > kMostComputedInAll) {
    return fail(Status(Code::over_budget,
                       fmt::format("Its constants that are computed have more than {} elements.",
                                   kMostComputedInAll)));
  }
  return stored(std::move(numbers));
}

Term Maker::stored(Numbers numbers, const std::string& name, StorageRole role) {
  if (!check_dims(numbers.shape)) {
    return fail({});
  }
  Term out{numbers.dtype, numbers.shape, std::make_shared<Source>()};
  out.source->name = name.empty() ? name_ : name;
  out.source->role = role;
  out.source->numbers = std::move(numbers);
  return out;
}

Term Maker::filled(DType dtype, const Dims& dims, double value) {
  if (!check_dims(dims)) {
    return fail({});
  }
  const int64_t n = Term{dtype, dims, nullptr}.elements();
  if (n > 64) {
    return expand(scalar(dtype, value), dims);
  }
  return constant(Numbers::of(dtype, dims, std::vector<double>(static_cast<size_t>(n), value)));
}

Term Maker::integers(DType dtype, const Dims& dims, const std::vector<int64_t>& values) {
  return constant(Numbers::of(dtype, dims, values));
}

Term Maker::count(DType dtype, int64_t n) {
  if (n < 0 || n > kMostComputed) {
    return fail(Status(Code::unsupported,
                       fmt::format("A table of {} indices is larger than {}.", n, kMostComputed)));
  }
  std::vector<int64_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return integers(dtype, {n}, values);
}

std::string Maker::free_name(const std::string& wanted) {
  const std::string base = wanted.empty() ? "constant" : wanted;
  std::string name = base;
  while (!names_.emplace(name, 0).second) {
    name = fmt::format("{}.{}", base, ++names_[base]);
  }
  return name;
}

// A parameter has f32; other dtypes are cast from it, in two halves where f32 has not enough digits.
bowline::Value Maker::parameter(Source& source) {
  const Numbers& numbers = *source.numbers;
  const auto add = [&](std::vector<double> values) {
    const std::string name = free_name(source.name);
    Numbers stored = Numbers::of(DType::f32, numbers.shape, values);
    const Result<Parameter> made =
        model_.parameter(name, numbers.shape, Init::zeros(), source.role);
    if (!check(made.status())) {
      return bowline::Value{};
    }
    values_.emplace_back(name, std::move(stored));
    return graph_.parameter(made.value());
  };
  const auto cast = [&](bowline::Value v) {
    return graph_.op("Cast", {v},
                     {{"to", std::string(bowline::name_of(numbers.dtype) == "bool"
                                             ? "boolean"
                                             : bowline::name_of(numbers.dtype))}});
  };
  if (numbers.dtype == DType::f32) {
    return add(numbers.reals());
  }
  constexpr int64_t kExact = int64_t{1} << 24;
  const std::vector<int64_t> whole =
      onnx::is_float(numbers.dtype) ? std::vector<int64_t>() : numbers.integers();
  const bool exact =
      std::ranges::all_of(whole, [&](int64_t v) { return v >= -kExact && v <= kExact; });
  if (exact) {
    return cast(add(numbers.reals()));
  }
  // Digits to the base 2^22, from the top; the sum wraps around where the number does.
  bowline::Value sum;
  for (int shift = 44; shift >= 0; shift -= 22) {
    std::vector<double> digits;
    for (const int64_t v : whole) {
      const int64_t digit = shift == 44 ? v >> 44 : v >> shift & 0x3fffff;
      digits.push_back(static_cast<double>(digit));
    }
    const bowline::Value part = cast(add(digits));
    if (shift == 44) {
      sum = part;
      continue;
    }
    Source factor;
    factor.name = source.name;
    factor.numbers = Numbers::of(numbers.dtype, {}, std::vector<int64_t>{0x400000});
    sum = graph_.op("Add", {graph_.op("Mul", {sum, parameter(factor)}), part});
  }
  return sum;
}

bowline::Value Maker::value_of(const Term& term) {
  if (!status_.ok()) {
    return {};
  }
  Source& s = *term.source;
  if (!s.made && s.input) {
    s.value = graph_.input(s.name, term.dtype, graph_dims(term.dims));
    inputs_.push_back(s.name);
  } else if (!s.made && s.numbers) {
    s.value = parameter(s);
  }
  s.made = true;
  return s.value;
}

void Maker::keep_as_statistic(const Term& value) {
  if (!value.source->made) {
    value.source->role = StorageRole::running_statistic;
  }
}

void Maker::output(const std::string& name, const Term& value) {
  if (status_.ok()) {
    // What is an input or a parameter itself is passed on by a node of its own.
    const bool own = value.source->input || value.numbers() != nullptr;
    const bowline::Value v = value_of(value);
    graph_.output(name, own ? graph_.op("Reshape", {v}, {{"dims", graph_dims(value.dims)}}) : v);
  }
}

Status Maker::finish() {
  BOWLINE_TRY(Status(status_));
  BOWLINE_TRY(graph_.finish());
  BOWLINE_TRY(model_.materialize(0));
  for (auto& [name, numbers] : values_) {
    BOWLINE_TRY(
        model_.set_value(name, Tensor{name, numbers.dtype, numbers.shape, numbers.bytes.data()}));
  }
  return {};
}

Terms Maker::ops(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
                 const std::vector<std::pair<DType, Dims>>& outputs) {
  std::vector<bowline::Value> values;
  for (const Term& t : inputs) {
    values.push_back(value_of(t));
  }
  for (const auto& [dtype, dims] : outputs) {
    check_dims(dims);
  }
  if (++nodes_ > kMostNodes) {
    fail(Status(Code::over_budget, fmt::format("It becomes more than {} nodes.", kMostNodes)));
  }
  std::vector<bowline::Value> made(outputs.size());
  if (status_.ok()) {
    graph_.named(name_);
    graph_.op(op, values, attributes);
    made = graph_.last_outputs();
    made.resize(outputs.size());
  }
  Terms out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Term t{outputs[i].first, outputs[i].second, std::make_shared<Source>()};
    t.source->made = true;
    t.source->value = made[i];
    out.push_back(std::move(t));
  }
  return out;
}

Term Maker::op(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
               DType dtype, const Dims& dims) {
  return ops(op, inputs, attributes, {{dtype, dims}})[0];
}

Term Maker::known_or(std::optional<Numbers> numbers, std::string_view op, const Terms& inputs,
                     const std::vector<Attribute>& attributes, DType dtype, const Dims& dims) {
  if (!check_dims(dims)) {
    return fail({});
  }
  const bool given = std::ranges::any_of(inputs, [](const Term& t) { return t.source->given; });
  if (numbers && !given) {
    return constant(std::move(*numbers));
  }
  Term out = this->op(op, inputs, attributes, dtype, dims);
  out.source->numbers = std::move(numbers);
  out.source->given = given;
  return out;
}

Term Maker::unary(std::string_view op, const Term& x, const std::vector<Attribute>& attributes) {
  return known_or(attributes.empty() ? fold::unary(op, x) : std::nullopt, op, {x}, attributes,
                  x.dtype, x.dims);
}

namespace {

Status same_dtype(std::string_view op, const Term& a, const Term& b) {
  BOWLINE_REQUIRE_CODE(a.dtype == b.dtype, Code::bad_file,
                       "The operands of {} have the dtypes {} and {}.", op,
                       bowline::name_of(a.dtype), bowline::name_of(b.dtype));
  return {};
}

}  // namespace

Term Maker::binary(std::string_view op, const Term& a, const Term& b) {
  const Result<Dims> dims = broadcast(a.dims, b.dims);
  if (!check(same_dtype(op, a, b)) || !check(dims.status()) || !check_dims(dims.value())) {
    return fail({});
  }
  return known_or(fold::binary(op, a, b, dims.value()), op, {a, b}, {}, a.dtype, dims.value());
}

Term Maker::compare(std::string_view op, const Term& a, const Term& b) {
  const Result<Dims> dims = broadcast(a.dims, b.dims);
  if (!check(same_dtype(op, a, b)) || !check(dims.status()) || !check_dims(dims.value())) {
    return fail({});
  }
  return known_or(fold::compare(op, a, b, dims.value()), op, {a, b}, {}, DType::boolean,
                  dims.value());
}

Term Maker::where(const Term& condition, const Term& a, const Term& b) {
  const Result<Dims> two = broadcast(a.dims, b.dims);
  if (!check(same_dtype("Where", a, b)) || !check(two.status())) {
    return fail({});
  }
  const Result<Dims> dims = broadcast(condition.dims, two.value());
  if (!check(dims.status()) || !check_dims(dims.value())) {
    return fail({});
  }
  return known_or(fold::where(condition, a, b, dims.value()), "Where", {condition, a, b}, {},
                  a.dtype, dims.value());
}

Term Maker::cast(const Term& x, DType dtype) {
  if (x.dtype == dtype) {
    return x;
  }
  const std::string to(dtype == DType::boolean ? "boolean" : bowline::name_of(dtype));
  return known_or(fold::cast(x, dtype), "Cast", {x}, {{"to", to}}, dtype, x.dims);
}

Term Maker::reshape(const Term& x, const Dims& dims) {
  if (dims == x.dims) {
    return x;
  }
  if (!check_dims(dims)) {
    return fail({});
  }
  if (Term{x.dtype, dims, nullptr}.elements() != x.elements()) {
    return fail(
        Status(Code::bad_file, fmt::format("Shape {} has not the {} elements of {}.",
                                           shape_text(dims), x.elements(), shape_text(x.dims))));
  }
  return known_or(fold::reshape(x, dims), "Reshape", {x}, {{"dims", graph_dims(dims)}}, x.dtype,
                  dims);
}

Term Maker::transpose(const Term& x, const std::vector<int64_t>& permutation) {
  Dims dims;
  std::vector<bool> seen(x.rank());
  bool legal = permutation.size() == x.rank();
  for (size_t i = 0; legal && i < permutation.size(); ++i) {
    const int64_t from = permutation[i];
    legal = from >= 0 && from < static_cast<int64_t>(x.rank()) && !seen[static_cast<size_t>(from)];
    if (legal) {
      seen[static_cast<size_t>(from)] = true;
      dims.push_back(x.dims[static_cast<size_t>(from)]);
    }
  }
  if (!legal) {
    return fail(Status(Code::bad_file, fmt::format("{} is no permutation of the axes of {}.",
                                                   shape_text(permutation), shape_text(x.dims))));
  }
  if (std::ranges::is_sorted(permutation)) {
    return x;
  }
  return known_or(fold::transpose(x, permutation), "Transpose", {x},
                  {{"permutation", graph_dims(permutation)}}, x.dtype, dims);
}

Term Maker::slice(const Term& x, int64_t axis, int64_t start, int64_t length) {
  const Result<int64_t> a = axis_of(axis, x.rank());
  if (!check(a.status())) {
    return fail({});
  }
  Dims dims = x.dims;
  int64_t& dim = dims[static_cast<size_t>(a.value())];
  if (start < 0 || start > dim || length < 0 || length > dim - start) {
    return fail(
        Status(Code::bad_file, fmt::format("Elements {} to {} lie outside of axis {} of {}.", start,
                                           length, axis, shape_text(x.dims))));
  }
  if (length == dim) {
    return x;
  }
  dim = length;
  return known_or(fold::slice(x, a.value(), start, length), "Slice", {x},
                  {{"axis", a.value()}, {"start", start}, {"length", length}}, x.dtype, dims);
}

Term Maker::concat(const Terms& parts, int64_t axis) {
  if (parts.empty()) {
    return fail(Status(Code::bad_file, "Nothing is joined."));
  }
  const Result<int64_t> at = axis_of(axis, parts[0].rank());
  if (!check(at.status())) {
    return fail({});
  }
  const auto a = static_cast<size_t>(at.value());
  Dims dims = parts[0].dims;
  for (size_t k = 1; k < parts.size(); ++k) {
    Dims other = parts[k].dims;
    if (!check(same_dtype("Concat", parts[0], parts[k]))) {
      return fail({});
    }
    const bool ranks = other.size() == dims.size();
    const int64_t joined = ranks ? dims[a] + other[a] : 0;
    if (ranks) {
      other[a] = dims[a];
    }
    if (other != dims) {
      return fail(
          Status(Code::bad_file, fmt::format("Shapes {} and {} cannot be joined along axis {}.",
                                             shape_text(dims), shape_text(parts[k].dims), axis)));
    }
    dims[a] = joined;
    if (!check_dims(dims)) {
      return fail({});
    }
  }
  if (parts.size() == 1) {
    return parts[0];
  }
  return known_or(fold::concat(parts, at.value(), dims), "Concat", parts, {{"axis", at.value()}},
                  parts[0].dtype, dims);
}

Terms Maker::split(const Term& x, int64_t axis, const std::vector<int64_t>& sizes) {
  const Terms none(sizes.size(), fail({}));
  const Result<int64_t> at = axis_of(axis, x.rank());
  if (!check(at.status())) {
    return none;
  }
  const auto a = static_cast<size_t>(at.value());
  int64_t left = x.dims[a];
  std::vector<std::pair<DType, Dims>> outputs;
  bool legal = true;
  for (const int64_t size : sizes) {
    legal = legal && size >= 0 && size <= left;
    left -= legal ? size : 0;
    Dims dims = x.dims;
    dims[a] = size;
    outputs.emplace_back(x.dtype, dims);
  }
  if (!legal || left != 0) {
    return Terms(
        sizes.size(),
        fail(Status(Code::bad_file, fmt::format("The parts {} are not axis {} of {}.",
                                                shape_text(sizes), axis, shape_text(x.dims)))));
  }
  if (x.constant()) {
    Terms out;
    int64_t start = 0;
    for (const int64_t size : sizes) {
      out.push_back(slice(x, at.value(), start, size));
      start += size;
    }
    return out;
  }
  return ops("Split", {x}, {{"axis", at.value()}, {"sizes", graph_dims(sizes)}}, outputs);
}

Term Maker::expand(const Term& x, const Dims& dims) {
  const Result<Dims> result = broadcast(x.dims, dims);
  if (!check_dims(dims) || !check(result.status()) || !check_dims(result.value())) {
    return fail({});
  }
  if (result.value() == x.dims) {
    return x;
  }
  return known_or(fold::expand(x, result.value()), "Expand", {x},
                  {{"dims", graph_dims(result.value())}}, x.dtype, result.value());
}

Term Maker::gather(const Term& x, const Term& indices, int64_t axis) {
  const Result<int64_t> a = axis_of(axis, x.rank());
  if (!check(a.status())) {
    return fail({});
  }
  Dims dims(x.dims.begin(), x.dims.begin() + a.value());
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + a.value() + 1, x.dims.end());
  if (!check_dims(dims)) {
    return fail({});
  }
  return known_or(fold::gather(x, indices, a.value(), dims), "Gather", {x, indices},
                  {{"axis", a.value()}}, x.dtype, dims);
}

Term Maker::reduce(std::string_view op, const Term& x, const std::vector<int64_t>& axes,
                   bool keep) {
  if (axes.empty()) {
    return x;
  }
  std::vector<bool> gone(x.rank());
  std::vector<int64_t> list;
  for (const int64_t given : axes) {
    const Result<int64_t> a = axis_of(given, x.rank());
    if (!check(a.status())) {
      return fail({});
    }
    if (!gone[static_cast<size_t>(a.value())]) {
      list.push_back(a.value());
    }
    gone[static_cast<size_t>(a.value())] = true;
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
  if (a.rank() < 2 || b.rank() < 2) {
    return fail(Status(Code::bad_file, fmt::format("{} and {} are no matrices.", shape_text(a.dims),
                                                   shape_text(b.dims))));
  }
  const auto last = [](const Dims& d, bool transposed, size_t i) {
    return d[d.size() - 2 + (transposed ? 1 - i : i)];
  };
  const Result<Dims> batch =
      broadcast(Dims(a.dims.begin(), a.dims.end() - 2), Dims(b.dims.begin(), b.dims.end() - 2));
  if (!check(batch.status()) || !check(same_dtype("MatMul", a, b))) {
    return fail({});
  }
  if (last(a.dims, transpose_a, 1) != last(b.dims, transpose_b, 0)) {
    return fail(Status(Code::bad_file, fmt::format("The inner dims of {} and {} differ.",
                                                   shape_text(a.dims), shape_text(b.dims))));
  }
  Dims dims = batch.value();
  dims.push_back(last(a.dims, transpose_a, 0));
  dims.push_back(last(b.dims, transpose_b, 1));
  return op("MatMul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}, a.dtype,
            dims);
}

}  // namespace bowline::onnx
