// Spans of the block formats (base/formats.h): 256 elements, which are one block or eight blocks of
// 32. A span is unpacked into the caches before it is multiplied or dequantized.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/formats.h"

namespace bowline::detail::cpu {

constexpr size_t kSpan = 256;
constexpr size_t kSpanGroup = 16;
constexpr size_t kSpanGroups = kSpan / kSpanGroup;

// x = scale * (code - offset) - least, with the scale and the least of the group of x, and the
// offset of the format.
struct UnpackedSpan {
  alignas(64) uint8_t codes[kSpan];
  alignas(64) float scales[kSpanGroups];
  alignas(64) float least[kSpanGroups];
};

// Reads the spans of a format.
struct SpanReader {
  size_t bytes = 0;  // of a span
  int offset = 0;
  void (*unpack)(const std::byte* span, UnpackedSpan& out) = nullptr;
};

// True if rows of this format and length consist of spans.
inline bool has_spans(const BlockFormat& format, size_t columns) {
  return columns % kSpan == 0 && kSpan % format.block == 0 && format.group % kSpanGroup == 0;
}

// The reader for the best instruction set of the machine. The format must have spans.
SpanReader span_reader(const BlockFormat& format);

}  // namespace bowline::detail::cpu
