// Dot products of a row of f32 with rows of codes, in integers where the machine has AVX512_VNNI: four products and their sum are one lane
// of VPDPBUSD, and no code becomes f32.
//
//   sums[j] += sum over k of a[k] * scale(j, k) * (code(j, k) - zero(j, k))
//
// Numerics  a block of 32 elements of a becomes numbers of 22 bits with one power of two, the smallest that holds the largest of them, so
//           that each is off by at most 2^-20 of it, or 2^-126; numbers of bf16 or f16 that are no smaller than 2^-12 or 2^-9 of it are exact.
//           Within four elements sums are exact; then f32, blocks in ascending order.
// Source    Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD.
#pragma once

#include <cstddef>

#include "compute/codes.h"

namespace bowline::cpu {

// Floats of a row of `columns` as integers.
size_t integer_row_floats(size_t columns);

// Whether the machine has the instruction, and these codes blocks that fit it.
bool has_integer_dots(const CodeLayout& layout);

// A row for products with such codes, aligned to 32 bytes. False: it holds infinities or NaN, which integers cannot.
bool to_integers(const CodeLayout& layout, const float* a, float* row);

// sums [4], of four rows of codes; `row` as to_integers() leaves it.
void integer_dots(const Codes& codes, const size_t* rows, const float* row, float* sums);

// Without: products in f32, as on other machines. For tests.
void allow_integer_dots(bool allow);

}  // namespace bowline::cpu
