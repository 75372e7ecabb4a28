#include "conformance/random/patterns.h"

#include <algorithm>

#include "conformance/suite.h"
#include "generated/attribute_fields.h"

namespace bowline::conformance::random {
namespace {

constexpr size_t kCases = 300;  // per operator; only those that fit are used
constexpr int64_t kPatternElements = 48;
constexpr int kPatternRank = 4;
// With a smaller eps a normalization is too nonlinear for a first-order bound.
constexpr double kLeastEps = 1e-2;

// Converts attributes to the form that a caller of GraphBuilder writes.
struct ToAttributes {
  std::vector<Attribute> made;

  template <class V>
  Status operator()(const AttributeField& field, const V& value) {
    Attribute& a = made.emplace_back(field.name, 0);
    if constexpr (std::is_same_v<V, float>) {
      a.value = static_cast<double>(
          field.name == "eps" ? std::max(value, static_cast<float>(kLeastEps)) : value);
    } else if constexpr (std::is_same_v<V, std::string>) {
      a.value = value;
    } else if constexpr (std::is_arithmetic_v<V> || std::is_enum_v<V>) {
      a.value = static_cast<int64_t>(value);
    } else {
      list(a, value);
    }
    return {};
  }

 private:
  template <class E>
  void list(Attribute& a, const std::vector<E>& values) {
    if constexpr (std::is_integral_v<E>) {
      a.value = std::vector<GraphDim>(values.begin(), values.end());
    } else if constexpr (std::is_floating_point_v<E>) {
      a.value = std::vector<double>(values.begin(), values.end());
    } else {
      made.pop_back();  // no operator in a case has this attribute
    }
  }
};

std::optional<Pattern::Operand> operand_of(const Case& c, size_t i) {
  const Input& in = c.inputs[i];
  Pattern::Operand out{in.shape, dtype_of_input(c, i), 0};
  const bool fits = !in.is_list && !in.derived && in.counted_axis < 0 && in.shape.elements() > 0 &&
                    in.shape.elements() <= kPatternElements && in.shape.rank() <= kPatternRank;
  if (!fits || out.dtype == DType::f32 || out.dtype == DType::boolean) {
    return fits ? std::optional(out) : std::nullopt;
  }
  out.classes = in.is_index ? in.high + 1 : 0;
  return out.dtype == DType::i32 && in.low <= 0 && out.classes > 0 ? std::optional(out)
                                                                   : std::nullopt;
}

std::optional<Pattern> pattern_of(const Case& c) {
  if (c.refused || c.dtype != DType::f32 || c.inputs.empty()) {
    return {};
  }
  Pattern out;
  out.op = c.op;
  out.differentiable = op_def(c.op).gradient != nullptr;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const auto operand = operand_of(c, i);
    if (!operand) {
      return {};
    }
    out.operands.push_back(*operand);
  }
  ToAttributes to;
  const Status made = with_attribute_table(c.op, [&]<class Table>(AttributeTable<Table>) {
    typename Table::NativeTableType table;
    c.attributes.as<Table>().UnPackTo(&table);
    return visit_fields(table, to);
  });
  out.attributes = std::move(to.made);
  return made.ok() ? std::optional(std::move(out)) : std::nullopt;
}

std::vector<std::vector<Pattern>> make_patterns() {
  std::vector<std::vector<Pattern>> out;
  for (int i = 0; i < kFileOps; ++i) {
    const OpDef& def = op_def(op_at(i));
    if (def.takes_lists || def.role == OpRole::repeat || def.updates[0].output >= 0) {
      continue;
    }
    const auto cases = cases_of(op_at(i), {.quick = true}, kCases);
    std::vector<Pattern> fitting;
    for (const Case& c : cases.ok() ? cases.value() : std::vector<Case>()) {
      if (auto p = pattern_of(c)) {
        fitting.push_back(std::move(*p));
      }
    }
    if (!fitting.empty()) {
      out.push_back(std::move(fitting));
    }
  }
  return out;
}

}  // namespace

const std::vector<std::vector<Pattern>>& patterns() {
  static const std::vector<std::vector<Pattern>> kPatterns = make_patterns();
  return kPatterns;
}

}  // namespace bowline::conformance::random
