// A decoder of LZMA. The compressor is that of Python; programs with the library need no other one.
#pragma once

#include <cstdint>
#include <span>

namespace bowline::detail::vulkan {

// Sizes of the contexts of bytes: how many high bits of the byte before, low bits of the position
// of a literal, and low bits of the position of a match (lc, lp and pb).
inline constexpr uint32_t kLzmaLiteralContext = 0, kLzmaLiteralPosition = 2, kLzmaPosition = 2;

// Decodes the first out.size() bytes of a raw LZMA stream with these sizes. Returns false if the
// stream ends earlier or refers to bytes before the first one.
// Source  Pavlov, "LZMA Specification", 2015.
bool decode_lzma(std::span<const uint8_t> packed, std::span<uint8_t> out);

}  // namespace bowline::detail::vulkan
