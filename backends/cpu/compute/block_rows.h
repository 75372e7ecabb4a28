// Spans of a row as integers, for the products with block formats (block_dots.h). Only for files
// that are compiled for x86.
#pragma once

#include "compute/block_dots.h"
#include "compute/row_integers.h"
#include "compute/spans.h"

namespace bowline::detail::cpu {

// A span is multiplied in steps of 64 elements, the bytes of a register of AVX-512.
constexpr size_t kSteps = 4;
constexpr size_t kStep = kSpan / kSteps;

// A span of the row, as integers times the unit of each group. `sums` are the sums of the groups.
struct SpanOfRow {
  alignas(64) int8_t digits[kSteps][kMostDigits][kStep];  // the highest digit first
  alignas(64) float units[kSpanGroups];
  alignas(64) float sums[kSpanGroups];
};

// The products of block_dots() with the instructions of AVX2.
IntegerDots block_dots_avx2(const BlockFormat& format, IntegersOf of);
// The digits of a row for them. Only some formats have codes that are small enough for digits of
// eight bits.
IntegersOf block_digits_avx2(const BlockFormat& format, IntegersOf of);

}  // namespace bowline::detail::cpu
