#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {

Context::Context(Maker& maker, const file::NodeProto& node, int version, std::string folder,
                 const Lowered& before, Terms inputs, std::vector<Readers> readers)
    : m(maker),
      opset(version),
      node_(node),
      folder_(std::move(folder)),
      before_(before),
      inputs_(std::move(inputs)),
      readers_(std::move(readers)),
      read_(inputs_.size()),
      outputs_(static_cast<size_t>(node.output_size())),
      set_(outputs_.size()) {}

const std::string& Context::op() const { return node_.op_type(); }

Term Context::in(size_t i) {
  require(has(i), "Input {} is missing.", i);
  read_[i] = true;
  return inputs_[i];
}

Term Context::optional(size_t i) { return has(i) ? in(i) : Term(); }

ConstantTensor Context::numbers(size_t i) {
  const Term term = in(i);
  require_known(term, fmt::format("Input {}", i));
  m.check_sizes(*term.numbers());
  return *term.numbers();
}

double Context::number(size_t i) {
  const ConstantTensor n = numbers(i);
  require(n.elements() == 1, "Input {} has {} elements.", i, n.elements());
  return n.reals()[0];
}

std::vector<int64_t> Context::integers(size_t i) {
  const ConstantTensor n = numbers(i);
  require(!is_float(n.dtype), "Input {} has dtype {}. The operator needs integers.", i, n.dtype);
  return n.integers();
}

int64_t Context::single(size_t i, std::string_view what) {
  const std::vector<int64_t> values = integers(i);
  require(values.size() == 1, "Input {} has {} elements, not 1.", what, values.size());
  return values[0];
}

bool Context::has_attribute(std::string_view name) const {
  return std::ranges::find(node_.attribute(), name, &Attribute::name) != node_.attribute().end();
}

// `is_right`: whether the attribute has the wanted type, which `kind` names in the message.
const Context::Attribute* Context::find(std::string_view name, std::string_view kind,
                                        bool (*is_right)(const Attribute&)) {
  asked_.insert(std::string(name));
  const auto found = std::ranges::find(node_.attribute(), name, &Attribute::name);
  if (found == node_.attribute().end()) {
    return nullptr;
  }
  require(is_right(*found), "Attribute \"{}\" is not of type {}.", name, kind);
  return &*found;
}

int64_t Context::integer(std::string_view name, int64_t otherwise) {
  const auto* const a = find(name, "integer", [](const Attribute& x) { return x.has_i(); });
  return a == nullptr ? otherwise : a->i();
}

double Context::real(std::string_view name, double otherwise) {
  const auto* const a = find(name, "number", [](const Attribute& x) { return x.has_f(); });
  return a == nullptr ? otherwise : static_cast<double>(a->f());
}

std::string Context::text(std::string_view name, const std::string& otherwise) {
  const auto* const a = find(name, "text", [](const Attribute& x) { return x.has_s(); });
  return a == nullptr ? otherwise : a->s();
}

std::string Context::choice(std::string_view name, const std::string& otherwise,
                            std::string_view choices, std::string_view what, Code code) {
  const std::string value = text(name, otherwise);
  refuse_unless(is_one_of(choices, value), code, "{} \"{}\" is not supported.", what,
                escaped(value));
  return value;
}

std::vector<int64_t> Context::list(std::string_view name) {
  const auto* const a = find(name, "list of integers", [](const Attribute& x) {
    return !x.has_i() && !x.has_f() && !x.has_s() && x.floats_size() == 0;
  });
  return a == nullptr ? std::vector<int64_t>() : std::vector(a->ints().begin(), a->ints().end());
}

std::vector<double> Context::reals(std::string_view name) {
  const auto* const a = find(name, "list of floats", [](const Attribute& x) {
    return !x.has_i() && !x.has_f() && !x.has_s() && x.ints_size() == 0;
  });
  return a == nullptr ? std::vector<double>()
                      : std::vector<double>(a->floats().begin(), a->floats().end());
}

std::vector<std::string> Context::texts(std::string_view name) {
  const auto* const a = find(name, "list of strings", [](const Attribute& x) {
    return x.ints_size() == 0 && x.floats_size() == 0;
  });
  return a == nullptr ? std::vector<std::string>()
                      : std::vector(a->strings().begin(), a->strings().end());
}

ConstantTensor Context::tensor(std::string_view name) {
  const auto* const a = find(name, "tensor", [](const Attribute& x) { return x.has_t(); });
  require(a != nullptr, "Attribute \"{}\" is not of type {}.", name, "tensor");
  return required(numbers_of(a->t(), folder_));
}

DType Context::dtype(std::string_view name, DType otherwise) {
  const int64_t number = integer(name, 0);
  require(number >= 0 && number < 100, "Attribute {} is {}, which is not a dtype of ONNX.", name,
          number);
  return number == 0 ? otherwise : required(dtype_of(static_cast<int32_t>(number)));
}

std::vector<int64_t> Context::list_or_input(std::string_view name, size_t i) {
  return has(i) ? integers(i) : list(name);
}

void Context::out(size_t i, const Term& value) {
  if (i < outputs_.size()) {
    outputs_[i] = value;
    set_[i] = true;
  }
}

void Context::check_leftovers() const {
  for (const Attribute& a : node_.attribute()) {
    support(asked_.contains(a.name()), "Attribute \"{}\" is not supported for this operator.",
            escaped(a.name()));
    support(a.ref_attr_name().empty(), "Attribute \"{}\" refers to an attribute of a function.",
            escaped(a.name()));
  }
  for (size_t i = 0; i < read_.size(); ++i) {
    support(read_[i] || !inputs_[i], "Input {} is not supported for this operator.", i);
  }
  for (size_t i = 0; i < set_.size(); ++i) {
    support(set_[i] || !wants(i), "Output {} is not supported for this operator.", i);
  }
}

const Lowering& find_lowering(std::string_view domain, std::string_view op) {
  for (const std::span<const Lowering> group : groups_of_lowerings()) {
    for (const Lowering& lowering : group) {
      if (lowering.domain == domain && is_one_of(lowering.ops, op)) {
        return lowering;
      }
    }
  }
  const std::string of =
      domain.empty() ? "" : fmt::format(" of the domain \"{}\"", escaped(domain));
  throw Refused{Status(Code::unsupported,
                       fmt::format("Operator \"{}\"{} is not supported.", escaped(op), of))};
}

void require_known(const Term& term, std::string_view what) {
  support(term.numbers() != nullptr,
          "{} is not known when the model is read: it depends on the values of an "
          "input. If that input is always the same, say so with --given NAME=VALUE.",
          what);
}

Term in_f32(const Term& x) { return is_float(x.dtype) ? cast(x, DType::f32) : x; }

Term channels_last(Context& c, const Term& x) {
  std::vector<int64_t> order = all_axes(x.rank());
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return c.m.transpose(x, order);
}

Term channels_second(Context& c, const Term& x) {
  std::vector<int64_t> order = all_axes(x.rank());
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return c.m.transpose(x, order);
}

Dims swapped(size_t rank, int64_t a, int64_t b) {
  Dims axes = all_axes(rank);
  std::swap(axes[a], axes[b]);
  return axes;
}

Term rows_times(Context& c, const Term& x, const Term& matrix, const Dims& dims) {
  const int64_t n = matrix.dims[0];
  return c.m.reshape(c.m.matmul(c.m.reshape(x, {n == 0 ? 0 : x.elements() / n, n}), matrix), dims);
}

Term with_length(Context& c, const Term& x, int64_t axis, int64_t length) {
  const int64_t have = x.dims[axis];
  const Dims none(x.rank(), 0);
  return length <= have ? c.m.slice(x, axis, 0, length)
                        : c.m.pad(x, none, none.with(axis, length - have));
}

void require_small(std::string_view what, const std::vector<int64_t>& values) {
  for (const int64_t v : values) {
    require(v >= INT32_MIN && v <= INT32_MAX, "{} has the value {}, which does not fit in 32 bits.",
            what, v);
  }
}

// An index beyond i32 must stay out of range, so it must not wrap around.
static Term narrowed(Term indices) {
  if (indices.dtype == DType::i64) {
    indices = max(indices, INT32_MIN);
    indices = min(indices, INT32_MAX);
  }
  return cast(indices, DType::i32);
}

Term i32_indices(const Term& indices, int64_t size) {
  return indices.constant() ? positive_indices(indices, size) : narrowed(indices);
}

Term positive_indices(const Term& indices, int64_t size) {
  support(size >= 0 && size <= INT32_MAX, "An axis of {} elements is too long for i32 indices.",
          size);
  const Term i = indices.dtype == DType::i32 && indices.constant() ? indices : narrowed(indices);
  const Term zero = scalar_like(i, 0);
  const Term wrapped = i + size;
  return where(i < zero, wrapped, i);
}

}  // namespace bowline::onnx
