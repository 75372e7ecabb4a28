// A decoder of LZMA, for the shaders in the library. The build compresses them with Python.
#pragma once

#include <cstdint>
#include <span>

namespace bowline::detail::vulkan {

// How many bits select probabilities (lc, lp and pb of LZMA). Of literals: high bits of the byte
// before, and low bits of the position. Of match flags and lengths: low bits of the position.
inline constexpr uint32_t kLzmaLiteralContext = 0, kLzmaLiteralPosition = 2, kLzmaPosition = 2;

// Decodes the first out.size() bytes of a raw LZMA stream with these sizes. Returns false if the
// stream ends earlier or refers to bytes before the first one.
// Source  Pavlov, "LZMA Specification", 2015.
bool decode_lzma(std::span<const uint8_t> packed, std::span<uint8_t> out);

}  // namespace bowline::detail::vulkan
