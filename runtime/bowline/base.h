// Escaped text, UTF-8, random numbers and temporary files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

// Whether write_file() could write so many bytes there now. Nothing is left behind. Errors  as
// write_file().
Status probe_file(const std::string& path, uint64_t bytes);
// The path that a temporary file of save() or write_file() was to become, which a killed process
// left; empty: `path` is none.
std::string target_of_temporary(const std::string& path);

// Text from outside with what cannot be seen made visible, so that nothing in it acts on a terminal
// or passes for something else: control characters (C0, DEL, C1) and bytes that are not UTF-8 as
// \n, \t, \r or \x1b; bidirectional controls, separators of lines and paragraphs, characters
// without width and without a picture as \u{202e}. All else stays as it is.
std::string escaped(std::string_view text);
// As escaped(), but newlines stay: text of several lines.
std::string escaped_lines(std::string_view text);
// A name in a listing: itself, or in double quotes and escaped where it is empty or has a space, a
// comma, a colon, a quote, a backslash or something that escaped() changes. Two names are never
// shown alike.
std::string listed_name(std::string_view name);
// Bytes of the well-formed UTF-8 sequence at the begin of a text that is not empty; 0 if there is
// none.
size_t utf8_length(std::string_view text);

// Counter-based random numbers: the bits depend on (key, counter) alone, on every device alike.
//
// Source  Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011:
//         Philox4x32-10.
using RandomBlock = std::array<uint32_t, 4>;

// Ten rounds over the 128-bit counter.
constexpr RandomBlock philox(RandomBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

}  // namespace bowline

#pragma GCC visibility pop
