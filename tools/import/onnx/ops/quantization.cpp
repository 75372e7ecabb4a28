// Quantization: real = (whole - zero point) * scale.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Broadcasts a scale or zero point: a scalar, one value per element of the axis, or one value per
// block.
Term along(Context& c, const Term& v, const Term& x) {
  const int64_t given = c.integer("axis", 1);
  const int64_t block = c.integer("block_size", 0);
  if (v.elements() == 1 && block == 0) {
    return c.m.reshape(v, {});
  }
  const int64_t axis = axis_of(given, x.rank());
  const int64_t n = x.dims[axis];
  if (block == 0) {
    require(v.dims == Dims{n}, "Scale or zero point {} does not fit axis {} of {}.", v.dims, axis,
            x.dims);
    return c.m.along(v, axis, x.rank());
  }
  const bool legal = block >= 1 && block <= std::max<int64_t>(n, 1) && v.rank() == x.rank();
  const Dims blocks = x.dims.with(axis, legal ? (n + block - 1) / block : 0);
  require(legal && v.dims == blocks,
          "Scale or zero point {} does not fit blocks of {} elements along axis {} of {}.", v.dims,
          block, axis, x.dims);
  const Term once = c.m.reshape(v, blocks.inserted(axis + 1, {1}));
  const Term repeated = c.m.expand(once, blocks.inserted(axis + 1, {block}));
  return c.m.slice(c.m.reshape(repeated, x.dims.with(axis, blocks[axis] * block)), axis, 0, n);
}

// saturate(round(x / scale) + zero point)
Term quantize(Context& c) {
  const Term x = c.in(0);
  const Term scale = along(c, c.in(1), x);
  c.ignore("saturate");  // for 8-bit floats only
  const DType exact = c.dtype("precision", scale.dtype);
  const DType dtype = c.dtype("output_dtype", DType::u8);
  const Term y = round(cast(x, exact) / cast(scale, exact));
  if (!c.has(2)) {
    return cast(y, dtype);
  }
  const Term zero = along(c, c.in(2), x);
  return cast(y + cast(zero, exact), zero.dtype);
}

Term dequantize(Context& c) {
  const Term x = c.in(0);
  const Term scale = along(c, c.in(1), x);
  const DType dtype = c.dtype("output_dtype", scale.dtype);
  const Term zero = c.optional(2);
  // In f32, because a 32-bit integer is not exact in f16.
  return cast(centred(x, zero ? along(c, zero, x) : zero) * cast(scale, DType::f32), dtype);
}

Term dynamic_quantize(Context& c) {
  const Quantized q = quantized_by_range(c, c.in(0));
  c.out(1, q.scale);
  c.out(2, q.zero_point);
  return q.whole;
}

constexpr Lowering kQuantizationLowerings[] = {
    {"QuantizeLinear", quantize},
    {"QuantizeLinear", quantize, kMicrosoft},
    {"DequantizeLinear", dequantize},
    {"DequantizeLinear", dequantize, kMicrosoft},
    {"DynamicQuantizeLinear", dynamic_quantize},
};

}  // namespace

Term centred(const Term& x, const Term& zero_point) {
  const Term y = cast(x, DType::f32);
  return zero_point ? y - cast(zero_point, DType::f32) : y;
}

Term saturated(const Term& x, const Term& zero_point) {
  const Term y = round(x);
  return cast(y + cast(zero_point, y.dtype), zero_point.dtype);
}

Quantized quantized_by_range(Context& c, const Term& x) {
  const Term zero = scalar_like(x, 0);
  const std::vector<int64_t> axes = all_axes(x.rank());
  const Term least = min(c.m.reduce("ReduceMin", x, axes, false), zero);
  const Term most = max(c.m.reduce("ReduceMax", x, axes, false), zero);
  const Term range = (most - least) / 255;
  // If all elements are zero the scale is 1, as in ONNX Runtime.
  const Term scale = where(range == zero, 1, range);
  const Term point = round(-(least / scale));
  const Term zero_point = cast(point, DType::u8);
  return {saturated(x / scale, zero_point), scale, zero_point};
}

std::span<const Lowering> lowerings_of_quantization() { return kQuantizationLowerings; }

}  // namespace bowline::onnx
