#include <fmt/format.h>

#include <numeric>

#include "base/escape.h"
#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {

Context::Context(Maker& maker, const file::NodeProto& node, int version, std::string folder,
                 const Lowered& before, Terms inputs, std::vector<bool> present,
                 std::vector<Readers> readers)
    : m(maker),
      opset(version),
      node_(node),
      folder_(std::move(folder)),
      before_(before),
      inputs_(std::move(inputs)),
      present_(std::move(present)),
      readers_(std::move(readers)),
      read_(inputs_.size()),
      outputs_(static_cast<size_t>(node.output_size())),
      set_(outputs_.size()) {}

Result<Term> Context::in(size_t i) {
  BOWLINE_REQUIRE_CODE(has(i), Code::bad_file, "Input {} is missing.", i);
  read_[i] = true;
  return inputs_[i];
}

Result<Term> Context::optional(size_t i) {
  if (!has(i)) {
    return Term();
  }
  return in(i);
}

Result<ConstantTensor> Context::numbers(size_t i) {
  BOWLINE_TRY_ASSIGN(const Term term, in(i));
  BOWLINE_TRY(require_known(term, fmt::format("Input {}", i)));
  BOWLINE_TRY(m.check_sizes(*term.numbers()));
  return *term.numbers();
}

Result<std::vector<int64_t>> Context::integers(size_t i) {
  BOWLINE_TRY_ASSIGN(const ConstantTensor n, numbers(i));
  BOWLINE_REQUIRE_CODE(!is_float(n.dtype), Code::bad_file,
                       "Input {} has dtype {}. The operator needs integers.", i,
                       bowline::name_of(n.dtype));
  return n.integers();
}

const file::AttributeProto* Context::find(std::string_view name) {
  asked_.insert(std::string(name));
  for (const file::AttributeProto& a : node_.attribute()) {
    if (a.name() == name) {
      return &a;
    }
  }
  return nullptr;
}

bool Context::has_attribute(std::string_view name) const {
  for (const file::AttributeProto& a : node_.attribute()) {
    if (a.name() == name) {
      return true;
    }
  }
  return false;
}

namespace {

Status of_kind(bool right, std::string_view name, std::string_view kind) {
  BOWLINE_REQUIRE_CODE(right, Code::bad_file, "Attribute \"{}\" is not of type {}.", name, kind);
  return {};
}

}  // namespace

Result<int64_t> Context::integer(std::string_view name, int64_t otherwise) {
  const file::AttributeProto* a = find(name);
  if (a == nullptr) {
    return otherwise;
  }
  BOWLINE_TRY(of_kind(a->has_i(), name, "integer"));
  return a->i();
}

Result<double> Context::real(std::string_view name, double otherwise) {
  const file::AttributeProto* a = find(name);
  if (a == nullptr) {
    return otherwise;
  }
  BOWLINE_TRY(of_kind(a->has_f(), name, "number"));
  return static_cast<double>(a->f());
}

Result<std::string> Context::text(std::string_view name, const std::string& otherwise) {
  const file::AttributeProto* a = find(name);
  if (a == nullptr) {
    return otherwise;
  }
  BOWLINE_TRY(of_kind(a->has_s(), name, "text"));
  return a->s();
}

Result<std::vector<int64_t>> Context::list(std::string_view name) {
  const file::AttributeProto* a = find(name);
  if (a == nullptr) {
    return std::vector<int64_t>();
  }
  BOWLINE_TRY(of_kind(!a->has_i() && !a->has_f() && !a->has_s() && a->floats_size() == 0, name,
                      "list of integers"));
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

Result<std::vector<double>> Context::reals(std::string_view name) {
  const file::AttributeProto* a = find(name);
  if (a == nullptr) {
    return std::vector<double>();
  }
  BOWLINE_TRY(of_kind(!a->has_i() && !a->has_f() && !a->has_s() && a->ints_size() == 0, name,
                      "list of floats"));
  return std::vector<double>(a->floats().begin(), a->floats().end());
}

Result<std::vector<std::string>> Context::texts(std::string_view name) {
  const file::AttributeProto* a = find(name);
  if (a == nullptr) {
    return std::vector<std::string>();
  }
  BOWLINE_TRY(of_kind(a->ints_size() == 0 && a->floats_size() == 0, name, "list of strings"));
  return std::vector<std::string>(a->strings().begin(), a->strings().end());
}

Result<ConstantTensor> Context::tensor(std::string_view name) {
  const file::AttributeProto* a = find(name);
  BOWLINE_TRY(of_kind(a != nullptr && a->has_t(), name, "tensor"));
  return numbers_of(a->t(), folder_);
}

Result<std::vector<int64_t>> Context::list_or_input(std::string_view name, size_t i) {
  if (!has(i)) {
    return list(name);
  }
  return integers(i);
}

size_t Context::outputs() const { return outputs_.size(); }

void Context::out(size_t i, const Term& value) {
  if (i < outputs_.size()) {
    outputs_[i] = value;
    set_[i] = true;
  }
}

Status Context::leftovers() const {
  for (const file::AttributeProto& a : node_.attribute()) {
    BOWLINE_REQUIRE_CODE(asked_.contains(a.name()), Code::unsupported,
                         "Attribute \"{}\" is not supported for this operator.", escaped(a.name()));
    BOWLINE_REQUIRE_CODE(a.ref_attr_name().empty(), Code::unsupported,
                         "Attribute \"{}\" refers to an attribute of a function.",
                         escaped(a.name()));
  }
  for (size_t i = 0; i < read_.size(); ++i) {
    BOWLINE_REQUIRE_CODE(read_[i] || !present_[i], Code::unsupported,
                         "Input {} is not supported for this operator.", i);
  }
  for (size_t i = 0; i < set_.size(); ++i) {
    BOWLINE_REQUIRE_CODE(set_[i] || !wants(i), Code::unsupported,
                         "Output {} is not supported for this operator.", i);
  }
  return {};
}

Status require_known(const Term& term, std::string_view what) {
  BOWLINE_REQUIRE_CODE(term.numbers() != nullptr, Code::unsupported,
                       "{} is not known when the model is read: it depends on the values of an "
                       "input. If that input is always the same, say so with --given NAME=VALUE.",
                       what);
  return {};
}

Term in_f32(Context& c, const Term& x) { return is_float(x.dtype) ? c.m.cast(x, DType::f32) : x; }

Status require_small(std::string_view what, const std::vector<int64_t>& values) {
  for (const int64_t v : values) {
    BOWLINE_REQUIRE_CODE(v >= INT32_MIN && v <= INT32_MAX, Code::bad_file,
                         "{} has the value {}, which does not fit in 32 bits.", what, v);
  }
  return {};
}

std::vector<int64_t> all_axes(size_t rank) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// An index beyond i32 must stay out of range, so it must not wrap around.
static Term narrowed(Context& c, Term indices) {
  if (indices.dtype == DType::i64) {
    indices = c.m.binary("Max", indices, c.m.scalar(DType::i64, INT32_MIN));
    indices = c.m.binary("Min", indices, c.m.scalar(DType::i64, INT32_MAX));
  }
  return c.m.cast(indices, DType::i32);
}

Term i32_indices(Context& c, const Term& indices, int64_t size) {
  return indices.constant() ? positive_indices(c, indices, size) : narrowed(c, indices);
}

Term positive_indices(Context& c, const Term& indices, int64_t size) {
  if (size < 0 || size > INT32_MAX) {
    return c.m.fail(
        Status(Code::unsupported,
               fmt::format("An axis of {} elements is too long for i32 indices.", size)));
  }
  const Term i = indices.dtype == DType::i32 && indices.constant() ? indices : narrowed(c, indices);
  const Term zero = c.m.scalar(DType::i32, 0);
  const Term wrapped = c.m.add(i, static_cast<double>(size));
  return c.m.where(c.m.compare("Less", i, zero), wrapped, i);
}

}  // namespace bowline::onnx
