// Whole numbers that stand for reals: real = (whole - zero point) * scale.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A scale or zero point of one element as it is, else along the axis.
Result<Term> along(Context& c, const Term& v, const Term& x, int64_t given) {
  if (v.elements() == 1) {
    return c.m.reshape(v, {});
  }
  BOWLINE_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  BOWLINE_REQUIRE_CODE(v.dims == Dims{x.dims[static_cast<size_t>(axis)]}, Code::bad_file,
                       "Scale or zero point {} does not fit axis {} of {}.", shape_text(v.dims),
                       axis, shape_text(x.dims));
  Dims dims(x.rank(), 1);
  dims[static_cast<size_t>(axis)] = v.dims[0];
  return c.m.reshape(v, dims);
}

// The dtype that an attribute names, or `otherwise`.
Result<DType> named_dtype(Context& c, const char* name, DType otherwise) {
  BOWLINE_ASSIGN(const int64_t number, c.integer(name, 0));
  if (number == 0) {
    return otherwise;
  }
  BOWLINE_REQUIRE_CODE(number > 0 && number < 100, Code::bad_file, "{} is {}.", name, number);
  return dtype_of(static_cast<int32_t>(number));
}

Status refuse_blocks(Context& c) {
  BOWLINE_ASSIGN(const int64_t size, c.integer("block_size", 0));
  BOWLINE_REQUIRE_CODE(size == 0, Code::unsupported,
                       "Blocks of {} values with a scale each are not read.", size);
  return {};
}

// saturate(round(x / scale) + zero point)
Status quantize(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const Term scale_input, c.in(1));
  BOWLINE_ASSIGN(const int64_t axis, c.integer("axis", 1));
  BOWLINE_ASSIGN(const Term scale, along(c, scale_input, x, axis));
  BOWLINE_TRY(refuse_blocks(c));
  c.ignore("saturate");  // of floats of 8 bits, which are refused as a dtype
  BOWLINE_ASSIGN(const DType precision, named_dtype(c, "precision", scale.dtype));
  BOWLINE_REQUIRE_CODE(precision == scale.dtype, Code::unsupported,
                       "It divides in {}, its scale has {}.", bowline::name_of(precision),
                       bowline::name_of(scale.dtype));
  BOWLINE_ASSIGN(DType dtype, named_dtype(c, "output_dtype", DType::u8));
  Term y = c.m.unary("Round", c.m.div(x, scale));
  if (c.has(2)) {
    BOWLINE_ASSIGN(const Term zero_input, c.in(2));
    BOWLINE_ASSIGN(const Term zero, along(c, zero_input, x, axis));
    dtype = zero.dtype;
    y = c.m.add(y, c.m.cast(zero, x.dtype));
  }
  c.out(0, c.m.cast(y, dtype));
  return {};
}

Status dequantize(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const Term scale_input, c.in(1));
  BOWLINE_ASSIGN(const int64_t axis, c.integer("axis", 1));
  BOWLINE_ASSIGN(const Term scale, along(c, scale_input, x, axis));
  BOWLINE_TRY(refuse_blocks(c));
  BOWLINE_ASSIGN(const DType dtype, named_dtype(c, "output_dtype", scale.dtype));
  BOWLINE_REQUIRE_CODE(dtype == scale.dtype, Code::unsupported,
                       "It multiplies in {}, its scale has {}.", bowline::name_of(dtype),
                       bowline::name_of(scale.dtype));
  Term y = c.m.cast(x, scale.dtype);
  if (c.has(2)) {
    BOWLINE_ASSIGN(const Term zero_input, c.in(2));
    BOWLINE_ASSIGN(const Term zero, along(c, zero_input, x, axis));
    y = c.m.sub(y, c.m.cast(zero, scale.dtype));
  }
  c.out(0, c.m.mul(y, scale));
  return {};
}

// To u8, with the scale and the zero point that the least and the largest element (and 0) ask for.
Status dynamic_quantize(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  const Term zero = c.m.scalar(x.dtype, 0);
  const std::vector<int64_t> axes = all_axes(x.rank());
  const Term least = c.m.binary("Min", c.m.reduce("ReduceMin", x, axes, false), zero);
  const Term most = c.m.binary("Max", c.m.reduce("ReduceMax", x, axes, false), zero);
  const Term scale = c.m.div(c.m.sub(most, least), c.m.scalar(x.dtype, 255));
  const Term point = c.m.unary("Round", c.m.unary("Neg", c.m.div(least, scale)));
  const Term y = c.m.add(c.m.unary("Round", c.m.div(x, scale)), point);
  c.out(0, c.m.cast(y, DType::u8));
  c.out(1, scale);
  c.out(2, c.m.cast(point, DType::u8));
  return {};
}

constexpr Lowering kQuantizationLowerings[] = {
    {"QuantizeLinear", quantize},
    {"DequantizeLinear", dequantize},
    {"DynamicQuantizeLinear", dynamic_quantize},
};

}  // namespace

std::span<const Lowering> lowerings_of_quantization() { return kQuantizationLowerings; }

}  // namespace bowline::onnx
