// Code points and their properties. Texts are valid UTF-8 where nothing else is said; a code point
// is at most U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bowline::text {

inline constexpr char32_t kReplacement = 0xFFFD;

// Bytes of the code point that begins with this byte.
constexpr size_t length_of(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
constexpr bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// The code point at `at`, which moves behind it.
inline char32_t next_of(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(at);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    at += 2;
    return (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  }
  if (lead < 0xF0) {
    at += 3;
    return (lead & 0xF) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  }
  at += 4;
  return (lead & 7) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
         (byte(at - 1) & 0x3F);
}
// The code point before `at`, which moves to its begin.
inline char32_t previous_of(std::string_view text, size_t& at) {
  do {
    --at;
  } while (at > 0 && continues(text[at]));
  size_t from = at;
  return next_of(text, from);
}

void append(std::string& out, char32_t c);
size_t count_of(std::string_view text);  // of its code points

// Of any bytes: the length of what is read as one code point at the begin of a text that is not
// empty. `valid`: it is one; else it is the longest begin of one, or one byte, and is read as
// U+FFFD (Unicode, chapter 3.9).
size_t step_over(std::string_view bytes, bool& valid);

// General categories, as the tables of the package `tokenizers` have them (unicode_differences.h):
// \p{L}, \p{N}, ...
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_word(char32_t c);             // \w of the Rust crate regex
bool is_white_space(char32_t c);      // White_Space
bool is_mark(char32_t c);             // M
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_control(char32_t c);          // Cc, Cf, Co: not white space of C
bool is_punctuation(char32_t c);      // P, and what in ASCII is neither letter, number nor space
bool is_cjk(char32_t c);              // ideographs, as BERT has them

// Whether Python's repr() shows it as it is: neither C nor Z, but for the space.
bool is_printable(char32_t c);

// Whether its decomposition and its combining class count.
bool is_normalized(char32_t c);

// Lower case without context: up to two code points; the second is 0 but for U+0130.
struct Lower {
  char32_t first = 0;
  char32_t second = 0;
};
Lower lower(char32_t c);

}  // namespace bowline::text
