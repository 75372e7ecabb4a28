// Which elementwise loss an operator computes.
#pragma once

#include "core/attributes.h"

namespace bowline {

enum class ElementLoss : uint32_t { mean_squared_error, binary_cross_entropy, huber };

struct LossCall {
  ElementLoss loss = ElementLoss::mean_squared_error;
  float p = 0;  // the constant of the loss
  Reduction reduction = Reduction::mean;

  // What the sum of n losses is divided by.
  double divisor(int64_t n) const {
    return reduction == Reduction::mean && n > 0 ? static_cast<double>(n) : 1.0;
  }
};

// Of an elementwise loss or its gradient (device::Record).
template <class Record>
LossCall loss_call_of(const Record& record) {
  if (record.op == Op::Huber || record.op == Op::HuberGrad) {
    const auto& t = record.attributes.template as<HuberAttributes>();
    return {ElementLoss::huber, t.delta(), t.reduction()};
  }
  const bool binary =
      record.op == Op::BinaryCrossEntropy || record.op == Op::BinaryCrossEntropyGrad;
  return {binary ? ElementLoss::binary_cross_entropy : ElementLoss::mean_squared_error, 0,
          record.attributes.template as<LossAttributes>().reduction()};
}

}  // namespace bowline
