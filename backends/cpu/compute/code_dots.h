// Dot products of a row with quantized rows that strides describe, in integers, with the dot
// products of bytes of aarch64: the part of integer_dots.h for int8, int4, q8_0 and q4_0. x86 has
// them in integer_dots.cpp.
//
// Numerics  as in integer_dots.h, but sums of eight elements are exact: lane i of a vector has
//           elements 4i .. 4i + 3 of each half of a block, in the order of the bytes.
#pragma once

#include "compute/integer_dots.h"

namespace bowline::detail::cpu {

// Number of floats that a row of `columns` needs as integers.
size_t code_row_floats(size_t columns);

bool has_code_dots(const CodeLayout& layout);

// As to_integers() and integer_dots().
bool to_code_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row);
IntegerDots code_dots(const CodeLayout& layout, IntegersOf of);

}  // namespace bowline::detail::cpu
