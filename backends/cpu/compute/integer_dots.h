// Dot products of a row of f32 with rows of codes, in integers where the machine has AVX512_VNNI:
// four products and their sum are one lane of VPDPBUSD, and no code becomes f32.
//
//   out[j] = sum over k of a[k] * scale(j, k) * (code(j, k) - zero(j, k))
//
// Numerics  a block of 32 elements of a becomes whole numbers with one power of two, the smallest
//           that holds the largest of them: of 22 bits for f32, so that each element is off by at
//           most 2^-20 of that largest, or 2^-126, and of 16 bits for what was bf16, off by at most
//           2^-14 of it, where bf16 itself is off by 2^-9. Within four elements sums are exact;
//           then f32, blocks in ascending order.
// Source    Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD.
#pragma once

#include <cstddef>

#include "compute/codes.h"

namespace bowline::detail::cpu {

// Floats of a row of `columns` as integers.
size_t integer_row_floats(size_t columns);

// Whether the machine has the instruction, and these codes blocks that fit it.
bool has_integer_dots(const CodeLayout& layout);

// What the numbers of a row were before they became f32.
enum class IntegersOf { f32, bf16 };

// A row for products with such codes, aligned to 64 bytes. False: it holds infinities or NaN, which
// integers cannot.
bool to_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row);

// f(codes, first, count, row, out [count]) for rows first .. first + count of codes; `row` as
// to_integers() leaves it for the same `of`.
using IntegerDots = void (*)(const Codes& codes, size_t first, size_t count, const float* row,
                             float* out);
IntegerDots integer_dots(IntegersOf of);

// Without: products in f32, as on other machines. For tests.
void allow_integer_dots(bool allow);

}  // namespace bowline::detail::cpu
