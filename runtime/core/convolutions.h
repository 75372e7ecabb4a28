// The sizes of the convolution that belongs to an operator: Conv, ConvTranspose or a gradient of
// Conv. They follow from the attributes and the shapes of two inputs and the output.
#pragma once

#include "core/attributes.h"
#include "core/windows.h"

namespace bowline::detail::convolutions {

using Find = Convolution (*)(const Attributes& a, const Shape& in0, const Shape& in1,
                             const Shape& out);

inline Convolution conv(const Attributes& a, const Shape& x, const Shape& weight, const Shape& y) {
  return convolution_of(a.as<ConvAttributes>(), x, weight, y);
}
inline Convolution transposed(const Attributes& a, const Shape& x, const Shape& weight,
                              const Shape& y) {
  return convolution_of(a.as<ConvTransposeAttributes>(), y, weight, x);
}
inline Convolution input_grad(const Attributes& a, const Shape& weight, const Shape& dy,
                              const Shape& dx) {
  return convolution_of(a.as<ConvInputGradAttributes>(), dx, weight, dy);
}
inline Convolution weight_grad(const Attributes& a, const Shape& x, const Shape& dy,
                               const Shape& dw) {
  return convolution_of(a.as<ConvWeightGradAttributes>(), x, dw, dy);
}

}  // namespace bowline::detail::convolutions
