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

// Checks whether write_file() could write this many bytes now. Leaves no file behind. Errors as
// write_file().
Status probe_file(const std::string& path, uint64_t bytes);
// Returns the final path of a temporary file that a killed save() or write_file() left. Returns ""
// if `path` is not such a file.
std::string target_of_temporary(const std::string& path);

// Makes invisible characters of untrusted text visible, so that the text cannot control a terminal.
// Control characters (C0, DEL, C1) and bytes that are not UTF-8 become "\n", "\t", "\r" or "\x1b".
// Bidirectional controls, separators, and characters without width become "\u{202e}". Other
// characters stay.
std::string escaped(std::string_view text);
// As escaped(), but newlines stay: text of several lines.
std::string escaped_lines(std::string_view text);
// Returns a name as listings show it. Two different names never look the same. The name is in
// double quotes and escaped if it is empty, or has a space, comma, colon, quote, backslash or
// character that escaped() changes.
std::string listed_name(std::string_view name);
// Returns the length in bytes of the UTF-8 sequence at the start of a text. Returns 0 if the
// sequence is not well-formed. The text must not be empty.
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
