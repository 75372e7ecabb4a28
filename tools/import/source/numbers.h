// Conversion between float dtypes.
#pragma once

#include "base/bytes.h"
#include "base/float16.h"
#include "source/source.h"

namespace bowline::import {

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

// Reads and writes an element of f32, f16 or bf16.
inline float number_at(const std::byte* from, DType dtype) {
  if (dtype == DType::f32) {
    return load<float>(from);
  }
  const auto half = load<uint16_t>(from);
  return dtype == DType::f16 ? to_f32(f16{half}) : to_f32(bf16{half});
}

inline void put_number(float f, std::byte* to, DType dtype) {
  if (dtype == DType::f32) {
    std::memcpy(to, &f, sizeof f);
    return;
  }
  const uint16_t h = dtype == DType::f16 ? from_f32<f16>(f).bits : from_f32<bf16>(f).bits;
  std::memcpy(to, &h, sizeof h);
}

// Converts between f32, f16 and bf16, rounding to nearest even. `from` and `to` have the same
// number of elements.
void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to,
             DType to_dtype);

// Converts the elements of a plain source to another float dtype while they are read.
ValueSource converted(ValueSource source, DType from, DType to, uint64_t elements);

}  // namespace bowline::import
