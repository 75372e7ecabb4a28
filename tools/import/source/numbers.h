// Conversion between float dtypes.
#pragma once

#include "source/source.h"

namespace bowline::import {

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

// Reads and writes an element of f32, f16 or bf16.
float number_at(const std::byte* from, DType dtype);
void put_number(float number, std::byte* to, DType dtype);

// Converts between f32, f16 and bf16, rounding to nearest even. `from` and `to` have the same
// number of elements.
void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to,
             DType to_dtype);

// Converts the elements of a plain source to another float dtype while they are read.
ValueSource converted(ValueSource source, DType from, DType to, uint64_t elements);

}  // namespace bowline::import
