// Nodes that the gradients of several operators append: casts, reshapes, broadcasts, products,
// sums.
#pragma once

#include "ops/op.h"

namespace bowline {

inline Attributes no_attributes() { return Attributes::of(NoAttributesT{}); }

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

inline Attributes cast_attributes(DType to) {
  CastAttributesT t;
  t.to = static_cast<file::DType>(to);
  return Attributes::of(t);
}

inline GradientValue cast_to(GradientContext& c, GradientValue v, DType dtype) {
  return !v.valid() || c.dtype(v) == dtype ? v : c.add1(Op::Cast, {v}, cast_attributes(dtype));
}

inline Attributes scale_attributes(float factor) {
  ScaleAttributesT t;
  t.factor = factor;
  return Attributes::of(t);
}

inline GradientValue scaled(GradientContext& c, GradientValue v, float factor) {
  return c.add1(Op::Scale, {v}, scale_attributes(factor));
}

// `length` elements of an axis, from `start`.
inline Attributes slice_attributes(int axis, int64_t start, int64_t length) {
  SliceAttributesT t;
  t.axis = axis;
  t.start = start;
  t.length = length;
  return Attributes::of(t);
}

inline GradientValue sliced(GradientContext& c, GradientValue v, int axis, int64_t start,
                            int64_t length) {
  return c.add1(Op::Slice, {v}, slice_attributes(axis, start, length));
}

inline Attributes mat_mul_attributes(bool transpose_a, bool transpose_b) {
  MatMulAttributesT t;
  t.transpose_a = transpose_a;
  t.transpose_b = transpose_b;
  return Attributes::of(t);
}

inline GradientValue multiplied(GradientContext& c, GradientValue a, GradientValue b,
                                bool transpose_a = false, bool transpose_b = false) {
  return c.add1(Op::MatMul, {a, b}, mat_mul_attributes(transpose_a, transpose_b));
}

// A tensor that is filled with one value.
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
