#include "conformance/oracle_gradient.h"

namespace bowline::conformance {

OracleGradient::OracleGradient(const Attributes& attributes, std::span<const Array> inputs,
                               std::span<const Array> outputs, std::vector<Array> douts,
                               Execute execute)
    : GradientContext(attributes),
      inputs_(inputs.size()),
      outputs_(outputs.size()),
      execute_(std::move(execute)) {
  values_.insert(values_.end(), inputs.begin(), inputs.end());
  values_.insert(values_.end(), outputs.begin(), outputs.end());
  for (Array& d : douts) {
    const bool reached = d.values.size() == static_cast<size_t>(d.shape.elements());
    douts_.push_back(reached ? GradientValue{static_cast<uint32_t>(values_.size())}
                             : GradientValue{});
    values_.push_back(std::move(d));
  }
  gradients_.resize(inputs_);
}

GradientValue OracleGradient::dout(int i) const {
  const auto output = static_cast<size_t>(i);
  return output < douts_.size() ? douts_[output] : GradientValue{};
}

GradientValues OracleGradient::add(Op op, const GradientValues& inputs,
                                   const Attributes& attributes) {
  std::vector<Array> taken;
  for (const GradientValue v : inputs) {
    if (!v.valid()) {
      return {};
    }
    taken.push_back(values_[v.index]);
  }
  Result<std::vector<Array>> made = execute_(op, attributes, taken);
  if (!made.ok()) {
    status_ = std::move(made).status();
    return {};
  }
  GradientValues out;
  for (Array& a : made.value()) {
    out.push_back({static_cast<uint32_t>(values_.size())});
    values_.push_back(std::move(a));
  }
  return out;
}

Status OracleGradient::din(int i, GradientValue gradient) {
  BOWLINE_TRY(Status(status_));
  BOWLINE_REQUIRE(gradient.valid(), "The gradient of input {} has no value.", i);
  if (!needs(i)) {
    return {};
  }
  const auto input = static_cast<size_t>(i);
  const Array& d = values_[gradient.index];
  BOWLINE_REQUIRE(d.shape == values_[input].shape,
                  "The gradient of input {} has shape {}, the input {}.", i, d.shape,
                  values_[input].shape);
  BOWLINE_REQUIRE(!gradients_[input], "Input {} gets two gradients.", i);
  gradients_[input] = d.values;
  return {};
}

}  // namespace bowline::conformance
