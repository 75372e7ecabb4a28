// Executes the gradient of one operator while it is built: each operator runs at once, as oracle.
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

  // `douts` contains the gradient of each output. An entry without values is an output that the
  // loss does not use.
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
  Shape shape(GradientValue v) const override { return values_[v.index].shape; }
  DType dtype(GradientValue v) const override { return values_[v.index].dtype; }
  GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) override;
  Status din(int i, GradientValue gradient) override;

  // Returns the gradient of input i, or std::nullopt.
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
