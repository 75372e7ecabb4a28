// Dot products of a row with rows of a block format (base/formats.h) in integers: the part of
// integer_dots.h for formats that strides cannot describe, such as the K-quants, and with AVX2 for
// all formats. The machine needs AVX2, or dot products of bytes of aarch64. The numerics are the
// same.
#pragma once

#include "compute/integer_dots.h"

namespace bowline::detail::cpu {

// Number of floats that a row of `columns` needs as integers.
size_t block_row_floats(size_t columns);

// True if rows of this format and length have these products.
bool has_block_dots(const BlockFormat& format, size_t columns);

// As to_integers(). The same row is for all formats.
bool to_block_integers(IntegersOf of, const float* a, size_t columns, float* row);

IntegerDots block_dots(const BlockFormat& format, IntegersOf of);

}  // namespace bowline::detail::cpu
