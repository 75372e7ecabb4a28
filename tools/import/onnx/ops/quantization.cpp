// Quantization: real = (whole - zero point) * scale.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Broadcasts a scale or zero point: a scalar, one value per element of the axis, or one value per
// block.
Result<Term> along(Context& c, const Term& v, const Term& x) {
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 1));
  BOWLINE_TRY_ASSIGN(const int64_t block, c.integer("block_size", 0));
  if (v.elements() == 1 && block == 0) {
    return c.m.reshape(v, {});
  }
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  if (block != 0) {
    const auto a = static_cast<size_t>(axis);
    const int64_t n = x.dims[a];
    Dims blocks = x.dims, once = x.dims, twice = x.dims;
    const bool legal = block >= 1 && block <= std::max<int64_t>(n, 1) && v.rank() == x.rank();
    blocks[a] = legal ? (n + block - 1) / block : 0;
    BOWLINE_REQUIRE_CODE(
        legal && v.dims == blocks, Code::bad_file,
        "Scale or zero point {} does not fit blocks of {} elements along axis {} of {}.",
        shape_text(v.dims), block, axis, shape_text(x.dims));
    once[a] = twice[a] = blocks[a];
    once.insert(once.begin() + axis + 1, 1);
    twice.insert(twice.begin() + axis + 1, block);
    Dims whole = x.dims;
    whole[a] = blocks[a] * block;
    const Term each = c.m.reshape(c.m.expand(c.m.reshape(v, once), twice), whole);
    return c.m.slice(each, axis, 0, n);
  }
  BOWLINE_REQUIRE_CODE(v.dims == Dims{x.dims[static_cast<size_t>(axis)]}, Code::bad_file,
                       "Scale or zero point {} does not fit axis {} of {}.", shape_text(v.dims),
                       axis, shape_text(x.dims));
  Dims dims(x.rank(), 1);
  dims[static_cast<size_t>(axis)] = v.dims[0];
  return c.m.reshape(v, dims);
}

// Returns the dtype of an attribute, or `otherwise` if the attribute is missing or 0.
Result<DType> dtype_named(Context& c, std::string_view name, DType otherwise) {
  BOWLINE_TRY_ASSIGN(const int64_t number, c.integer(name, 0));
  BOWLINE_REQUIRE_CODE(number >= 0 && number < 100, Code::bad_file,
                       "Attribute {} is {}, which is not a dtype of ONNX.", name, number);
  return number == 0 ? Result<DType>(otherwise) : dtype_of(static_cast<int32_t>(number));
}

// saturate(round(x / scale) + zero point)
Status quantize(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term scale_input, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term scale, along(c, scale_input, x));
  c.ignore("saturate");  // for 8-bit floats only
  BOWLINE_TRY_ASSIGN(const DType exact, dtype_named(c, "precision", scale.dtype));
  Term y = c.m.unary("Round", c.m.div(c.m.cast(x, exact), c.m.cast(scale, exact)));
  BOWLINE_TRY_ASSIGN(DType dtype, dtype_named(c, "output_dtype", DType::u8));
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const Term zero_input, c.in(2));
    BOWLINE_TRY_ASSIGN(const Term zero, along(c, zero_input, x));
    dtype = zero.dtype;
    y = c.m.add(y, c.m.cast(zero, exact));
  }
  c.out(0, c.m.cast(y, dtype));
  return {};
}

Status dequantize(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term scale_input, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term scale, along(c, scale_input, x));
  BOWLINE_TRY_ASSIGN(const DType dtype, dtype_named(c, "output_dtype", scale.dtype));
  Term y = c.m.cast(x, DType::f32);  // a 32-bit integer is not exact in f16
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const Term zero_input, c.in(2));
    BOWLINE_TRY_ASSIGN(const Term zero, along(c, zero_input, x));
    y = c.m.sub(y, c.m.cast(zero, DType::f32));
  }
  c.out(0, c.m.cast(c.m.mul(y, c.m.cast(scale, DType::f32)), dtype));
  return {};
}

Status dynamic_quantize(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  const Quantized q = quantized_by_range(c, x);
  c.out(0, q.whole);
  c.out(1, q.scale);
  c.out(2, q.zero_point);
  return {};
}

constexpr Lowering kQuantizationLowerings[] = {
    {"QuantizeLinear", quantize},
    {"QuantizeLinear", quantize, kMicrosoft},
    {"DequantizeLinear", dequantize},
    {"DequantizeLinear", dequantize, kMicrosoft},
    {"DynamicQuantizeLinear", dynamic_quantize},
};

}  // namespace

Term centred(Context& c, const Term& x, const Term& zero_point) {
  const Term y = c.m.cast(x, DType::f32);
  return zero_point.source == nullptr ? y : c.m.sub(y, c.m.cast(zero_point, DType::f32));
}

Term saturated(Context& c, const Term& x, const Term& zero_point) {
  const Term y = c.m.unary("Round", x);
  return c.m.cast(c.m.add(y, c.m.cast(zero_point, y.dtype)), zero_point.dtype);
}

Quantized quantized_by_range(Context& c, const Term& x) {
  const Term zero = c.m.scalar(x.dtype, 0);
  const std::vector<int64_t> axes = all_axes(x.rank());
  const Term least = c.m.binary("Min", c.m.reduce("ReduceMin", x, axes, false), zero);
  const Term most = c.m.binary("Max", c.m.reduce("ReduceMax", x, axes, false), zero);
  const Term range = c.m.div(c.m.sub(most, least), c.m.scalar(x.dtype, 255));
  // If all elements are zero the scale is 1, as in ONNX Runtime.
  const Term scale = c.m.where(c.m.compare("Equal", range, zero), c.m.scalar(x.dtype, 1), range);
  const Term point = c.m.unary("Round", c.m.unary("Neg", c.m.div(least, scale)));
  const Term zero_point = c.m.cast(point, DType::u8);
  return {saturated(c, c.m.div(x, scale), zero_point), scale, zero_point};
}

std::span<const Lowering> lowerings_of_quantization() { return kQuantizationLowerings; }

}  // namespace bowline::onnx
