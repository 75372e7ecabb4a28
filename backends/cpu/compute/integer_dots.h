// Dot products of an f32 row with quantized rows, in integers: with AVX512_VNNI a lane of VPDPBUSD
// adds four products, and no quantized value is converted to f32. SDOT of aarch64 is the same for
// signed bytes. With AVX2, block formats (base/formats.h) have such products, in rows of whole
// spans (spans.h).
//
//   out[j] = sum over k of a[k] * scale(j, k) * (code(j, k) - zero(j, k))
//
// Numerics  a block of 32 elements of a becomes integers times a power of two, the smallest that
//           can hold its largest element. f32 rows use 22 bits, so each element has an error of at
//           most 2^-20 of the largest, or 2^-126. Rows that were bf16 use 16 bits, with an error of
//           at most 2^-14 of the largest; bf16 itself has an error of 2^-9. Sums of four elements
//           are exact; then f32 is used, for blocks in ascending order. Block formats have the same
//           bits with AVX512_VNNI and aarch64; other encodings do not (code_dots.h).
// Source    Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD and
//           VPMADDUBSW. Arm Architecture Reference Manual for A-profile, SDOT (vector).
#pragma once

#include <cstddef>

#include "compute/codes.h"

namespace bowline::detail::cpu {

// Number of floats that a row of `columns` needs as integers.
size_t integer_row_floats(size_t columns);

// True if the machine has the instructions and the encoding has suitable blocks.
bool has_integer_dots(const CodeLayout& layout);

// The dtype of a row before its conversion to f32.
enum class IntegersOf { f32, bf16 };

// Converts a row for products with this encoding; aligned to 64 bytes. Returns false if the row
// contains infinities or NaN, which integers cannot represent.
bool to_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row);

// f(codes, first, count, row, out [count]) multiplies quantized rows first .. first + count with
// `row`, which to_integers() has made for the same `of`.
using IntegerDots = void (*)(const Codes& codes, size_t first, size_t count, const float* row,
                             float* out);
IntegerDots integer_dots(const CodeLayout& layout, IntegersOf of);

// For tests: false selects products in f32, as on other machines.
void allow_integer_dots(bool allow);

}  // namespace bowline::detail::cpu
