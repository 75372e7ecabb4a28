// Tensors of one number, as gradients begin with.
#pragma once

#include "ops/op.h"

namespace bowline {

inline GradientValue filled(GradientContext& c, const Shape& shape, DType type, float value) {
  FillAttributesT t;
  t.value = value;
  t.dims.assign(shape.dims().begin(), shape.dims().end());
  t.dtype = static_cast<file::DType>(type);
  return c.add1(Op::Fill, {}, Attributes::of(t));
}

}  // namespace bowline
