// The gradient of one operator, executed while it is built: what it adds runs at once, as oracles.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "conformance/evaluate.h"

namespace bowline::conformance {

class OracleGradient : public GradientContext {
 public:
  // Runs one operator of the gradient.
  using Execute = std::function<Result<std::vector<Array>>(Op op, const Attributes& attributes,
                                                           std::span<const Array> inputs)>;

  // `douts` holds the gradient of each output; one without values stands for an output that the
  // loss does not reach.
  OracleGradient(const Attributes& attributes, std::span<const Array> inputs,
                 std::span<const Array> outputs, std::vector<Array> douts, Execute execute);

  int inputs() const override { return static_cast<int>(inputs_); }
  GradientValue in(int i) const override { return {static_cast<uint32_t>(i)}; }
  GradientValue out(int i) const override {
    return {static_cast<uint32_t>(inputs_) + static_cast<uint32_t>(i)};
  }
  GradientValue dout(int i) const override;
  bool needs(int i) const override { return is_float(values_[static_cast<size_t>(i)].dtype); }
  bool from_batch(int) const override { return true; }
  const Shape& shape(GradientValue v) const override { return values_[v.index].shape; }
  DType dtype(GradientValue v) const override { return values_[v.index].dtype; }
  GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) override;
  Status din(int i, GradientValue gradient) override;

  // Of input i, or none.
  const std::optional<std::vector<double>>& gradient(size_t i) const { return gradients_[i]; }

 private:
  size_t inputs_;
  size_t outputs_;
  Execute execute_;
  std::deque<Array> values_;
  std::vector<GradientValue> douts_;
  std::vector<std::optional<std::vector<double>>> gradients_;
  Status status_;
};

}  // namespace bowline::conformance
