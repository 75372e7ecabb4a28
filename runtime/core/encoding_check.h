// Checks that an encoding keeps the values of a storage.
#pragma once

#include "core/encoding.h"

namespace bowline {

// Decodes `encoded`, which Encoding::encode() made of `values`, and compares. A finite value stays
// finite. It moves by at most half a quantization step of its block (BlockFormat::most_wrong for
// block formats), plus an eighth of a step where the scale is rounded to 16 bits. Plain values may
// be rounded to the dtype.
// Errors  bad_argument: a value moves further; the message names the first one.
Status check_encoded(const Encoding& encoding, std::span<const float> values,
                     std::span<const std::byte> encoded, DType dtype, const Shape& shape);

}  // namespace bowline
