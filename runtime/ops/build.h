// Node sequences that the gradients of several operators append: reshapes, broadcasts and sums.
#pragma once

#include "ops/op.h"

namespace bowline {

inline Attributes dims_attributes(const Shape& shape) {
  DimsAttributesT t;
  t.dims.assign(shape.dims().begin(), shape.dims().end());
  return Attributes::of(t);
}

inline Attributes fill_attributes(float value, const Shape& shape, DType dtype) {
  FillAttributesT t;
  t.value = value;
  t.dims.assign(shape.dims().begin(), shape.dims().end());
  t.dtype = static_cast<file::DType>(dtype);
  return Attributes::of(t);
}

// Appends a tensor that is filled with one value.
inline GradientValue filled(GradientContext& c, const Shape& shape, DType dtype, float value) {
  return c.add1(Op::Fill, {}, fill_attributes(value, shape, dtype));
}

inline GradientValue zeros_like(GradientContext& c, GradientValue like) {
  return filled(c, c.shape(like), c.dtype(like), 0);
}

inline Attributes reshape_attributes(const Shape& shape) {
  ReshapeAttributesT t;
  t.dims.assign(shape.dims().begin(), shape.dims().end());
  return Attributes::of(t);
}

inline GradientValue reshaped(GradientContext& c, GradientValue v, const Shape& shape) {
  return !v.valid() || c.shape(v) == shape ? v
                                           : c.add1(Op::Reshape, {v}, reshape_attributes(shape));
}

inline GradientValue broadcast_to(GradientContext& c, GradientValue v, const Shape& shape) {
  return !v.valid() || c.shape(v) == shape ? v
                                           : c.add1(Op::BroadcastTo, {v}, dims_attributes(shape));
}

// Sums the gradient `v` of a broadcast to the shape before the broadcast.
inline GradientValue summed_to(GradientContext& c, GradientValue v, const Shape& shape) {
  return !v.valid() || c.shape(v) == shape ? v : c.add1(Op::SumTo, {v}, dims_attributes(shape));
}

}  // namespace bowline
