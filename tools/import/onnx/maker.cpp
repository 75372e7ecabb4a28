#include "onnx/maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "onnx/batch.h"
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
  BOWLINE_REQUIRE_CODE(axis >= -r && axis < r, Code::bad_file,
                       "Axis {} is out of range for a tensor with {} axes.", axis, rank);
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

size_t Dims::checked(size_t axis) const {
  if (axis >= size()) {
    throw Refused{Status(Code::bad_file, fmt::format("Shape {} has too few axes for this operator.",
                                                     shape_text(*this)))};
  }
  return axis;
}

namespace {

// Longest chain of values with a deferred node (Later) that is kept before its nodes are added.
constexpr int kMostLater = 64;

Source& source_of(const Term& term) {
  if (term.source == nullptr) {
    throw Refused{Status(Code::bad_file, "A required input of the operator is missing.")};
  }
  return *term.source;
}

// True if an optimizer step cannot move a value: masks hold infinities or the largest floats.
bool is_mask(const ConstantTensor& numbers) {
  constexpr float kMost = 1e30f;
  const auto far = [](float v) { return !(std::abs(v) < kMost); };
  if (numbers.dtype != DType::f32) {
    return std::ranges::any_of(numbers.reals(),
                               [&](double v) { return far(static_cast<float>(v)); });
  }
  for (size_t i = 0; i < numbers.elements(); ++i) {
    float v = 0;
    std::memcpy(&v, numbers.bytes.data() + i * sizeof v, sizeof v);
    if (far(v)) {
      return true;
    }
  }
  return false;
}

// Counts NaN and infinite values. If all values are infinities or zeros, the parameter is a bound
// or a mask and the count is 0.
uint64_t count_not_finite(const std::vector<double>& values) {
  const auto count = std::ranges::count_if(values, [](double v) { return !std::isfinite(v); });
  const bool is_mask =
      std::ranges::all_of(values, [](double v) { return v == 0 || std::isinf(v); });
  return is_mask ? 0 : static_cast<uint64_t>(count);
}

}  // namespace

Maker::Maker(Model& model, const std::string& entry_point,
             std::function<bool(const std::string&)> trains, std::optional<Batch> batch,
             bool tie_equal)
    : model_(model),
      graph_(model, entry_point, batch ? batch->name : "", tie_equal),
      trains_(std::move(trains)),
      batch_(std::move(batch)) {
  if (batch_) {
    check(model_.dim(batch_->name, {}));
  }
}

Term Maker::fail(Status status) { throw Refused{std::move(status)}; }

void Maker::check(const Status& status) {
  if (!status.ok()) {
    throw Refused{status};
  }
}

void Maker::check_dims(const Dims& dims) { check(elements_of(dims).status()); }

Term Maker::input(const std::string& name, DType dtype, const Dims& dims,
                  std::optional<ConstantTensor> given, std::optional<int64_t> batch_axis) {
  check_dims(dims);
  Term out{dtype, dims, std::make_shared<Source>()};
  out.source->input = true;
  out.source->name = name;
  out.source->given = given.has_value();
  out.source->numbers = std::move(given);
  if (batch_axis) {
    out.source->batch = BatchAxis{*batch_axis, 1};
  }
  return out;
}

void Maker::count_computed(size_t elements) {
  computed_ += static_cast<int64_t>(elements);
  if (computed_ > kMostComputedInAll) {
    fail(Status(Code::over_budget,
                fmt::format("The constants that the importer computes have more than {} elements.",
                            kMostComputedInAll)));
  }
}

Term Maker::constant(ConstantTensor numbers) {
  count_computed(numbers.elements());
  return stored(std::move(numbers));
}

Term Maker::weight(ConstantTensor numbers, const std::string& name, int readers) {
  const bool trained = is_float(numbers.dtype) && ((!numbers.shape.empty() && !is_mask(numbers)) ||
                                                   (trains_ != nullptr && trains_(name)));
  Term out =
      stored(std::move(numbers), name, trained ? StorageRole::weight : StorageRole::constant);
  out.source->kept = trained;
  out.source->readers = readers;
  return out;
}

Term Maker::stored(ConstantTensor numbers, const std::string& name, StorageRole role) {
  check_dims(numbers.shape);
  Term out{numbers.dtype, numbers.shape, std::make_shared<Source>()};
  out.source->name = name.empty() ? name_ : name;
  out.source->role = role;
  out.source->numbers = std::move(numbers);
  return out;
}

Term Maker::filled(DType dtype, const Dims& dims, double value) {
  check_dims(dims);
  const int64_t n = Term{dtype, dims, nullptr}.elements();
  if (n > 64) {
    return expand(scalar(dtype, value), dims);
  }
  return constant(
      ConstantTensor::of(dtype, dims, std::vector<double>(static_cast<size_t>(n), value)));
}

Term Maker::integers(DType dtype, const Dims& dims, const std::vector<int64_t>& values) {
  return constant(ConstantTensor::of(dtype, dims, values));
}

Term Maker::count(DType dtype, int64_t n) {
  if (n < 0 || n > kMostComputed) {
    return fail(Status(
        Code::unsupported,
        fmt::format("A table of {} indices is larger than the limit of {}.", n, kMostComputed)));
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

// Parameters are f32. Another dtype is cast from f32. Integers with too many bits for f32 are
// stored as several parameters.
bowline::Value Maker::parameter(Source& source) {
  const ConstantTensor& numbers = *source.numbers;
  check(check_sizes(numbers));
  const auto add = [&](std::vector<double> values) {
    const std::string name = free_name(source.name);
    ConstantTensor stored = ConstantTensor::of(DType::f32, numbers.shape, values);
    if (const uint64_t count = count_not_finite(values); count > 0) {
      not_finite_.push_back({name, count, values.size()});
    }
    if (batch_) {
      const auto* bytes = reinterpret_cast<const char*>(stored.bytes.data());
      const std::string_view content(bytes, stored.bytes.size());
      made_.push_back({source.name, std::hash<std::string>()(
                                        fmt::format("{}{}{}", name, shape_text(stored.shape),
                                                    std::hash<std::string_view>()(content)))});
    }
    const Result<bowline::Value> made = graph_.parameter(name, source.role, std::move(stored));
    check(made.status());
    return made.value();
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
  // Digits in base 2^22, the highest first. The sum wraps around in the same cases as the integer.
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
    factor.numbers = ConstantTensor::of(numbers.dtype, {}, std::vector<int64_t>{0x400000});
    sum = graph_.op("Add", {graph_.op("Mul", {sum, parameter(factor)}), part});
  }
  return sum;
}

bowline::Value Maker::value_of(const Term& term) {
  Source& s = source_of(term);
  if (s.made) {
    return s.value;
  }
  s.made = true;
  if (s.input) {
    s.value = graph_.input(s.name, term.dtype, named_dims(term));
    inputs_.push_back(s.name);
  } else if (s.later != nullptr) {
    const std::shared_ptr<Later> later = std::move(s.later);
    const std::string name = std::exchange(name_, later->name);
    s.value = op(later->op, later->inputs, later->attributes, term.dtype, term.dims).source->value;
    name_ = name;
  } else if (s.numbers) {
    s.value = parameter(s);
  }
  return s.value;
}

bool Maker::is_statistic(const Term& value) {
  return source_of(value).role == StorageRole::running_statistic;
}

Term Maker::statistic(const Term& value, const std::string& name) {
  Source& s = source_of(value);
  if (s.input || s.later != nullptr || !s.numbers || s.given || s.numbers->dtype != DType::f32) {
    return value;
  }
  if (s.readers == 1 && !s.made) {
    s.role = StorageRole::running_statistic;
    s.kept = true;
    return value;
  }
  count_computed(s.numbers->elements());
  Term out = stored(*s.numbers, name, StorageRole::running_statistic);
  out.source->kept = true;
  return out;
}

Term Maker::untrained(const Term& value) {
  Source& s = source_of(value);
  const bool is_parameter = s.numbers && s.later == nullptr && !s.given;
  if (s.input || (s.numbers && !s.kept) || (is_parameter && s.role != StorageRole::weight)) {
    return value;
  }
  if (is_parameter && s.readers == 1 && !s.made) {
    s.role = StorageRole::constant;
    return value;
  }
  return unary("StopGradient", value);
}

// Returns the dims for the graph, with the name of the dynamic batch in place of its size.
std::vector<GraphDim> Maker::named_dims(const Term& term) const {
  std::vector<GraphDim> out = graph_dims(term.dims);
  const std::optional<BatchAxis>& batch = term.source->batch;
  if (batch) {
    out[static_cast<size_t>(batch->axis)] = GraphDim(batch_->name);
  }
  return out;
}

// Reshapes x so that one axis holds the batch and nothing else.
Term Maker::with_batch_axis(const Term& x) {
  const BatchAxis& batch = *x.source->batch;
  const int64_t behind = x.dims[static_cast<size_t>(batch.axis)] / batch.front / batch_->size;
  if (!batch_->was_one && batch.front * behind != 1) {
    return fail(Status(
        Code::unsupported,
        fmt::format("Axis {} of the output shape {} has {} elements for each row of the batch. "
                    "A named dim cannot express that.",
                    batch.axis, shape_text(x.dims), batch.front * behind)));
  }
  Dims dims(x.dims.begin(), x.dims.begin() + batch.axis);
  for (const int64_t part : {batch.front, batch_->size, behind}) {
    if (part != 1) {
      dims.push_back(part);
    }
  }
  dims.insert(dims.end(), x.dims.begin() + batch.axis + 1, x.dims.end());
  return reshape(x, dims);
}

void Maker::output(const std::string& name, const Term& given) {
  const Term value = has_batch(given) ? with_batch_axis(given) : given;
  // An input or parameter cannot be an output itself: a Reshape node passes it on.
  const bool own = source_of(value).input || value.numbers() != nullptr;
  const bowline::Value v = value_of(value);
  graph_.output(name, own ? graph_.op("Reshape", {v}, {{"dims", named_dims(value)}}) : v);
}

Status Maker::finish() {
  BOWLINE_TRY(graph_.finish());
  notes_.insert(notes_.end(), graph_.notes().begin(), graph_.notes().end());
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
    fail(Status(Code::over_budget,
                fmt::format("The model becomes more than {} nodes.", kMostNodes)));
  }
  BatchedNode node{attributes, std::vector<std::optional<BatchAxis>>(outputs.size())};
  if (batch_) {
    node = batched_node(*batch_, op, inputs, attributes, outputs);
    made_.push_back({name_, std::hash<std::string>()(node_form(op, node.attributes))});
  }
  graph_.op(op, values, node.attributes, name_);
  std::vector<bowline::Value> made = graph_.last_outputs();
  made.resize(outputs.size());
  Terms out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Term t{outputs[i].first, outputs[i].second, std::make_shared<Source>()};
    t.source->made = true;
    t.source->value = made[i];
    t.source->batch = node.outputs[i];
    out.push_back(std::move(t));
  }
  return out;
}

Term Maker::op(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
               DType dtype, const Dims& dims) {
  return ops(op, inputs, attributes, {{dtype, dims}})[0];
}

Term Maker::sizes(const Dims& dims, const std::vector<int64_t>& values) {
  ConstantTensor numbers = ConstantTensor::of(DType::i64, dims, values);
  if (follows_from_batch(values)) {
    for (const int64_t v : values) {
      numbers.of_batch.push_back(follows_from_batch({v}));
    }
  }
  return constant(std::move(numbers));
}

Status Maker::check_sizes(const ConstantTensor& numbers) const {
  if (numbers.of_batch.empty()) {
    return {};
  }
  const std::vector<int64_t> values = numbers.integers();
  for (size_t i = 0; i < values.size(); ++i) {
    BOWLINE_REQUIRE_CODE(!numbers.of_batch[i] || follows_from_batch({values[i]}), Code::unsupported,
                         "A size depends on the batch size but is not a multiple of it.");
  }
  return {};
}

Term Maker::known_or(std::optional<ConstantTensor> numbers, std::string_view op,
                     const Terms& inputs, const std::vector<Attribute>& attributes, DType dtype,
                     const Dims& dims) {
  check_dims(dims);
  bool given = false, kept = false;
  int depth = 0;
  for (const Term& t : inputs) {
    const Source& s = source_of(t);
    given = given || s.given;
    kept = kept || (s.kept && is_float(dtype));
    depth = std::max(depth, s.later != nullptr ? s.later->depth : 0);
  }
  if (numbers && batch_) {
    numbers->of_batch = marks_of_batch(*batch_, op, inputs, *numbers, dims);
  }
  if (numbers && !given && !kept) {
    return constant(std::move(*numbers));
  }
  if (numbers && !given) {
    count_computed(numbers->elements());
    Term out{dtype, dims, std::make_shared<Source>()};
    out.source->numbers = std::move(numbers);
    out.source->kept = true;
    out.source->later =
        std::make_shared<Later>(Later{std::string(op), inputs, attributes, name_, depth + 1});
    if (depth >= kMostLater) {
      value_of(out);
    }
    return out;
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
  check(same_dtype(op, a, b));
  check(dims.status());
  check_dims(dims.value());
  return known_or(fold::binary(op, a, b, dims.value()), op, {a, b}, {}, a.dtype, dims.value());
}

Term Maker::compare(std::string_view op, const Term& a, const Term& b) {
  const Result<Dims> dims = broadcast(a.dims, b.dims);
  check(same_dtype(op, a, b));
  check(dims.status());
  check_dims(dims.value());
  return known_or(fold::compare(op, a, b, dims.value()), op, {a, b}, {}, DType::boolean,
                  dims.value());
}

Term Maker::where(const Term& condition, const Term& a, const Term& b) {
  const Result<Dims> two = broadcast(a.dims, b.dims);
  check(same_dtype("Where", a, b));
  check(two.status());
  const Result<Dims> dims = broadcast(condition.dims, two.value());
  check(dims.status());
  check_dims(dims.value());
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
  check_dims(dims);
  if (Term{x.dtype, dims, nullptr}.elements() != x.elements()) {
    return fail(
        Status(Code::bad_file, fmt::format("Shape {} does not have the {} elements of shape {}.",
                                           shape_text(dims), x.elements(), shape_text(x.dims))));
  }
  return known_or(fold::reshape(x, dims), "Reshape", {x}, {{"dims", graph_dims(dims)}}, x.dtype,
                  dims);
}

bool Maker::follows_from_batch(const std::vector<int64_t>& numbers) const {
  return batch_ && std::ranges::any_of(numbers, [&](int64_t n) { return batch_->is_multiple(n); });
}

bool Maker::is_axis_of_one(const Term& x, int64_t axis) const {
  return has_rows_of_one(x) && x.source->batch->axis == axis &&
         x.dims[static_cast<size_t>(axis)] == batch_->size;
}

Dims Maker::row_dims(const Term& x) const {
  return has_rows_of_one(x) ? dims_of_row(*batch_, x) : x.dims;
}

Term Maker::reshape_rows(const Term& x, const Dims& row) {
  return reshape(x, dims_of_rows(*batch_, x, row));
}

Terms Maker::with_same_rows(Terms parts) {
  const auto rows = std::ranges::find_if(parts, [&](const Term& t) { return has_batch(t); });
  if (rows != parts.end()) {
    const auto axis = static_cast<size_t>(rows->source->batch->axis);
    const size_t rank = rows->rank();
    for (Term& t : parts) {
      t = has_batch(t) || t.rank() != rank ? t : for_each_row(t, axis);
    }
  }
  return parts;
}

Term Maker::for_each_row(const Term& x, size_t axis) {
  if (!batch_ || !batch_->was_one || x.dims[axis] != 1) {
    return x;
  }
  Dims dims = x.dims;
  dims[axis] = batch_->size;
  return expand(x, dims);
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
    return fail(Status(Code::bad_file, fmt::format("{} is not a permutation of the axes of {}.",
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
  check(a.status());
  Dims dims = x.dims;
  int64_t& dim = dims[static_cast<size_t>(a.value())];
  if (start < 0 || start > dim || length < 0 || length > dim - start) {
    return fail(
        Status(Code::bad_file, fmt::format("Elements {} to {} are out of range for axis {} of {}.",
                                           start, length, axis, shape_text(x.dims))));
  }
  if (length == dim) {
    return x;
  }
  dim = length;
  return known_or(fold::slice(x, a.value(), start, length), "Slice", {x},
                  {{"axis", a.value()}, {"start", start}, {"length", length}}, x.dtype, dims);
}

Term Maker::concat(const Terms& given, int64_t axis) {
  if (given.empty()) {
    return fail(Status(Code::bad_file, "There is nothing to concatenate."));
  }
  const Result<int64_t> at = axis_of(axis, given[0].rank());
  check(at.status());
  const auto a = static_cast<size_t>(at.value());
  const Terms parts = with_same_rows(given);
  Dims dims = parts[0].dims;
  for (size_t k = 1; k < parts.size(); ++k) {
    Dims other = parts[k].dims;
    check(same_dtype("Concat", parts[0], parts[k]));
    const bool ranks = other.size() == dims.size();
    const int64_t joined = ranks ? dims[a] + other[a] : 0;
    if (ranks) {
      other[a] = dims[a];
    }
    if (other != dims) {
      return fail(Status(Code::bad_file,
                         fmt::format("Shapes {} and {} cannot be concatenated along axis {}.",
                                     shape_text(dims), shape_text(parts[k].dims), axis)));
    }
    dims[a] = joined;
    check_dims(dims);
  }
  if (parts.size() == 1) {
    return parts[0];
  }
  return known_or(fold::concat(parts, at.value(), dims), "Concat", parts, {{"axis", at.value()}},
                  parts[0].dtype, dims);
}

Terms Maker::split(const Term& x, int64_t axis, const std::vector<int64_t>& sizes) {
  const Result<int64_t> at = axis_of(axis, x.rank());
  check(at.status());
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
    fail(Status(Code::bad_file, fmt::format("The sizes {} do not add up to axis {} of {}.",
                                            shape_text(sizes), axis, shape_text(x.dims))));
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
  check_dims(dims);
  check(result.status());
  check_dims(result.value());
  if (result.value() == x.dims) {
    return x;
  }
  const bool by_batch = follows_from_batch(result.value());
  return known_or(by_batch ? std::nullopt : fold::expand(x, result.value()), "Expand", {x},
                  {{"dims", graph_dims(result.value())}}, x.dtype, result.value());
}

Term Maker::gather(const Term& x, const Term& indices, int64_t axis) {
  const Result<int64_t> a = axis_of(axis, x.rank());
  check(a.status());
  Dims dims(x.dims.begin(), x.dims.begin() + a.value());
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + a.value() + 1, x.dims.end());
  check_dims(dims);
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
    check(a.status());
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
    return fail(Status(Code::bad_file, fmt::format("{} and {} are not matrices.",
                                                   shape_text(a.dims), shape_text(b.dims))));
  }
  const auto last = [](const Dims& d, bool transposed, size_t i) {
    return d[d.size() - 2 + (transposed ? 1 - i : i)];
  };
  const Result<Dims> batch =
      broadcast(Dims(a.dims.begin(), a.dims.end() - 2), Dims(b.dims.begin(), b.dims.end() - 2));
  check(batch.status());
  check(same_dtype("MatMul", a, b));
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
