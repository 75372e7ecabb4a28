// Spelling of bytes in vocabularies. Byte-level vocabularies spell each byte as a printable code
// point that is not a space.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace bowline::text {

// "!" to "~", U+00A1 to U+00AC and U+00AE to U+00FF represent themselves. The other bytes are
// U+0100 and up, in order.
constexpr auto kByteLetters = [] {
  std::array<char16_t, 256> out{};
  char16_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    out[byte] = printable ? static_cast<char16_t>(byte) : next++;
  }
  return out;
}();

constexpr auto kLetterBytes = [] {
  std::array<int16_t, 0x144> out{};
  out.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) {
    out[kByteLetters[byte]] = static_cast<int16_t>(byte);
  }
  return out;
}();

// "<0x1F>": the spelling of a byte in vocabularies with byte fallback.
inline std::string byte_piece(size_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

// The bytes that a token spells. Empty if a code point does not represent a byte.
inline std::optional<std::string> bytes_of(std::string_view piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const char32_t c = next_of(piece, at);
    if (c >= kLetterBytes.size() || kLetterBytes[c] < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(kLetterBytes[c]);
  }
  return out;
}

}  // namespace bowline::text
