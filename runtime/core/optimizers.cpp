#include "core/optimizers.h"

#include <algorithm>

#include "generated/attribute_fields.h"

namespace bowline {
namespace {

// Collects the attributes that are numbers or truth values.
struct Numbers {
  template <class V>
  Status operator()(const AttributeField& field, const V& value) {
    if constexpr (std::is_arithmetic_v<V>) {
      if (count < kMostOptimizerNumbers) {
        names[count] = field.name;
        values[count++] = static_cast<float>(value);
      }
    }
    return {};
  }
  bool is_zero(std::string_view name) const {
    const auto found = std::ranges::find(names, name);
    return found != names.end() && values[static_cast<size_t>(found - names.begin())] == 0;
  }

  size_t count = 0;
  std::array<std::string_view, kMostOptimizerNumbers> names;
  std::array<float, kMostOptimizerNumbers> values = {};
};

}  // namespace

const OptimizerDef* optimizer_named(std::string_view name) {
  const auto found = std::ranges::find(optimizer_defs(), name,
                                       [](const OptimizerDef& def) { return def.info.name; });
  return found == optimizer_defs().end() ? nullptr : &*found;
}

const OptimizerDef* optimizer_of(Op op) {
  const auto found = std::ranges::find(optimizer_defs(), op, &OptimizerDef::op);
  return found == optimizer_defs().end() ? nullptr : &*found;
}

float setting_of(const OptimizerDef& def, const Optimizer& optimizer, std::string_view name) {
  const auto given = optimizer.settings.find(name);
  return given != optimizer.settings.end()
             ? given->second
             : std::ranges::find(def.info.settings, name, &OptimizerSetting::name)->default_value;
}

UpdateOperands update_operands(Op op, const Attributes& attributes) {
  Numbers numbers;
  with_attribute_table(
      op, [&]<class T>(AttributeTable<T>) { (void)visit_fields(attributes.as<T>(), numbers); });
  UpdateOperands out;
  size_t input = kUpdateInputs;
  const std::span<const OptimizerState> states = optimizer_of(op)->states;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].needs.empty() || !numbers.is_zero(states[i].needs)) {
      out.states[i] = input++;
    }
  }
  out.numbers = numbers.values;
  out.count = numbers.count;
  return out;
}

}  // namespace bowline
