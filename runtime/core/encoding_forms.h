// Parts shared by the forms of encodings: the functions of a form, reading and writing scales, and
// the division of a tensor into blocks.
#pragma once

#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/float16.h"
#include "core/encoding.h"
#include "core/strides.h"

namespace bowline {

// The functions of a form. Encoding documents them. `e` is an encoding of this form.
struct EncodingFunctions {
  Status (*check)(const Encoding& e, DType dtype, const Shape& shape);
  uint64_t (*bytes)(const Encoding& e, DType dtype, const Shape& shape);
  Status (*check_view)(const Encoding& e, const View& view, const Shape& shape);
  void (*decode)(const Encoding& e, std::span<const std::byte> from, DType dtype,
                 const Shape& shape, ElementRun run, std::span<float> to);
  void (*encode)(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to);
  std::optional<CodeLayout> (*layout)(const Encoding& e, const Shape& shown);
  CodePlace (*place)(const Encoding& e, DType dtype, const Shape& shape, uint64_t first);
};

extern const EncodingFunctions kInt8Functions, kInt4Functions, kFormatFunctions;

struct EncodingForm {
  const char* name;
  const EncodingFunctions* functions;
  Encoding usual;               // the defaults of parse_encoding()
  bool has_parameters = false;  // the text has parameters after the name
  double steps = 0;             // from 0 to the largest magnitude of a symmetric block
  double steps_of_range = 0;  // from the smallest to the largest value of a block with a zero point
  double most_wrong = 0;      // largest error of a value, in steps
  uint32_t format = 0;        // BlockFormat::number, or 0
};

// The format of an encoding with kFormatFunctions.
inline const BlockFormat& format_of(const Encoding& e) {
  return block_formats()[e.form->format - 1];
}

inline float load_float(const std::byte* from, DType dtype) {
  const auto as = [from]<class T>(T value) {
    std::memcpy(&value, from, sizeof(value));
    return to_f32(value);
  };
  return dtype == DType::f16 ? as(f16()) : dtype == DType::bf16 ? as(bf16()) : as(float());
}

inline void store_float(float x, std::byte* to, DType dtype) {
  const auto as = [to](auto value) { std::memcpy(to, &value, sizeof(value)); };
  dtype == DType::f16 ? as(from_f32<f16>(x)) : dtype == DType::bf16 ? as(from_f32<bf16>(x)) : as(x);
}

// The number of elements in a row: the last dim, or 1 for a scalar.
inline uint64_t columns_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : static_cast<uint64_t>(shape.back());
}

// The division of a tensor into blocks: the tensor has outer x length x inner elements, and
// `length` is divided into blocks.
struct CodeBlocks {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
  int64_t size = 1;  // of a block
  int64_t per_line = 1;

  CodeBlocks(const Encoding& e, const Shape& shape) {
    if (e.block == 0) {
      length = shape.elements();
      size = std::max<int64_t>(length, 1);
    } else {
      const int axis = positive_axis(e.axis, shape.rank());
      outer = shape.elements(0, axis);
      length = shape[axis];
      inner = shape.elements(axis + 1, shape.rank());
      size = e.block;
    }
    per_line = (length + size - 1) / size;
  }
  int64_t count() const { return outer * per_line * inner; }
  int64_t block_of(int64_t element) const {
    const int64_t at = element / inner % length;
    return (element / (inner * length) * per_line + at / size) * inner + element % inner;
  }
};

// The smallest and the largest of 0 and all values of a block. NaN if a value is not finite.
struct BlockExtent {
  float least = 0;
  float most = 0;
  // NaN stays NaN. The result is never -0.
  float magnitude() const { return std::max(-least, most) + 0.0f; }
  void add(float x) {
    if (!std::isfinite(x)) {
      least = NAN;
    } else if (!std::isnan(least)) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
};

// The quantization step, before the scale is rounded.
double exact_step(const Encoding& e, const BlockExtent& extent);

// Stores the scale of a block and returns the stored (rounded) scale. A non-finite scale is stored
// as 0.
float store_scale(const Encoding& e, const BlockExtent& extent, std::byte* to);

// EncodingFunctions::check_view for forms with blocks along an axis.
Status check_view_blocks(const Encoding& e, const View& view, const Shape& shape);

}  // namespace bowline
