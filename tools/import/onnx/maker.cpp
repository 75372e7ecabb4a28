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

std::vector<GraphDim> graph_dims(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

std::vector<int64_t> all_axes(size_t rank) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

std::string name_in_cast(DType dtype) {
  return dtype == DType::boolean ? "boolean" : std::string(name_of(dtype));
}

size_t Dims::checked(size_t axis) const {
  require(axis < size(), "Shape {} has too few axes for this operator.", *this);
  return axis;
}

Dims Dims::with(int64_t axis, int64_t dim) const {
  Dims out = *this;
  out[axis] = dim;
  return out;
}

Dims Dims::without(int64_t axis) const {
  Dims out = *this;
  out.erase(out.begin() + axis);
  return out;
}

Dims Dims::inserted(int64_t axis, const Dims& more) const {
  Dims out = *this;
  out.insert(out.begin() + axis, more.begin(), more.end());
  return out;
}

namespace {

// Longest chain of values with a deferred node (Later) that is kept before its nodes are added.
constexpr int kMostLater = 64;

Source& source_of(const Term& term) {
  require(term.source != nullptr, "A required input of the operator is missing.");
  return *term.source;
}

// True if an optimizer step cannot move a value: masks hold infinities or the largest floats.
bool is_mask(const ConstantTensor& numbers) {
  constexpr float kMost = 1e30f;
  return std::ranges::any_of(numbers.reals(),
                             [](double v) { return !(std::abs(static_cast<float>(v)) < kMost); });
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
    require(model_.set_dim_limits(batch_->name, {}));
  }
}

Term Maker::blank(DType dtype, const Dims& dims) {
  require(elements_of(dims).status());
  Term out{dtype, dims, std::make_shared<Source>()};
  out.source->maker = this;
  return out;
}

Term Maker::input(const std::string& name, DType dtype, const Dims& dims,
                  std::optional<ConstantTensor> given, std::optional<int64_t> batch_axis) {
  Term out = blank(dtype, dims);
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
  within_budget(computed_ <= kMostComputedInAll,
                "The constants that the importer computes have more than {} elements.",
                kMostComputedInAll);
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
  Term out = blank(numbers.dtype, numbers.shape);
  out.source->name = name.empty() ? name_ : name;
  out.source->role = role;
  out.source->numbers = std::move(numbers);
  return out;
}

Term Maker::filled(DType dtype, const Dims& dims, double value) {
  const int64_t n = required(elements_of(dims));
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
  support(n >= 0 && n <= kMostComputed, "A table of {} indices is larger than the limit of {}.", n,
          kMostComputed);
  return table(dtype, {n}, [](int64_t i) { return i; });
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
  check_sizes(numbers);
  const auto add = [&](std::vector<double> values) {
    const std::string name = free_name(source.name);
    ConstantTensor stored = ConstantTensor::of(DType::f32, numbers.shape, values);
    if (const uint64_t count = count_not_finite(values); count > 0) {
      not_finite_.push_back({name, count, values.size()});
    }
    if (batch_) {
      const size_t content = std::hash<std::string_view>()(stored.content());
      made_.push_back({source.name, std::hash<std::string>()(fmt::format(
                                        "{}{}{}", name, shape_text(stored.shape), content))});
    }
    return required(graph_.parameter(name, source.role, std::move(stored)));
  };
  const auto cast = [&](bowline::Value v) {
    return graph_.op("Cast", {v}, {{"to", name_in_cast(numbers.dtype)}});
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
  const int64_t behind = x.dims[batch.axis] / batch.front / batch_->size;
  support(batch_->was_one || batch.front * behind == 1,
          "Axis {} of the output shape {} has {} elements for each row of the batch. A named dim "
          "cannot express that.",
          batch.axis, x.dims, batch.front * behind);
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
  Terms out;
  for (const auto& [dtype, dims] : outputs) {
    out.push_back(blank(dtype, dims));
  }
  within_budget(++nodes_ <= kMostNodes, "The model becomes more than {} nodes.", kMostNodes);
  BatchedNode node{attributes, std::vector<std::optional<BatchAxis>>(outputs.size())};
  if (batch_) {
    node = batched_node(*batch_, op, inputs, attributes, outputs);
    made_.push_back({name_, std::hash<std::string>()(node_form(op, node.attributes))});
  }
  graph_.op(op, values, node.attributes, name_);
  std::vector<bowline::Value> made = graph_.last_outputs();
  made.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    out[i].source->made = true;
    out[i].source->value = made[i];
    out[i].source->batch = node.outputs[i];
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

void Maker::check_sizes(const ConstantTensor& numbers) const {
  if (numbers.of_batch.empty()) {
    return;
  }
  const std::vector<int64_t> values = numbers.integers();
  for (size_t i = 0; i < values.size(); ++i) {
    support(!numbers.of_batch[i] || follows_from_batch({values[i]}),
            "A size depends on the batch size but is not a multiple of it.");
  }
}

Term Maker::known_or(std::optional<ConstantTensor> numbers, std::string_view op,
                     const Terms& inputs, const std::vector<Attribute>& attributes, DType dtype,
                     const Dims& dims) {
  require(elements_of(dims).status());
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
    Term out = blank(dtype, dims);
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

bool Maker::follows_from_batch(const std::vector<int64_t>& numbers) const {
  return batch_ && std::ranges::any_of(numbers, [&](int64_t n) { return batch_->is_multiple(n); });
}

bool Maker::is_axis_of_one(const Term& x, int64_t axis) const {
  return has_rows_of_one(x) && x.source->batch->axis == axis && x.dims[axis] == batch_->size;
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
  return expand(x, x.dims.with(static_cast<int64_t>(axis), batch_->size));
}

}  // namespace bowline::onnx
