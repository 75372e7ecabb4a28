// Codes read by their layout alone, element by element: what the kernels of a backend do, and the
// decoding of encodings.
#pragma once

#include "core/encoding.h"

namespace bowline {

// The elements from a run on that begins at `place`, `skipped` of them left out.
void decode_codes(const CodeLayout& layout, std::span<const std::byte> storage,
                  const CodePlace& place, uint64_t skipped, std::span<float> to);

// One past the last byte that reading all of `shown` from `place` on touches; 0 of no elements.
uint64_t codes_end(const CodeLayout& layout, const CodePlace& place, const Shape& shown);

}  // namespace bowline
