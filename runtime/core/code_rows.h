// Dequantizes elements one by one, given only a CodeLayout, as the kernels of backends do.
#pragma once

#include "core/encoding.h"

namespace bowline {

// Dequantizes to.size() elements. The first is `skipped` elements after `place`.
void decode_codes(const CodeLayout& layout, std::span<const std::byte> storage,
                  const CodePlace& place, uint64_t skipped, std::span<float> to);

// Returns the end of the bytes that are read for a tensor of shape `shown` at `place`. Returns 0 if
// the tensor is empty.
uint64_t codes_end(const CodeLayout& layout, const CodePlace& place, const Shape& shown);

}  // namespace bowline
