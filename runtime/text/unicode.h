// Code points and their properties. Texts are valid UTF-8 unless stated otherwise. A code point is
// at most U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bowline::text {

inline constexpr char32_t kReplacement = 0xFFFD;

// Length in bytes of the code point with this lead byte.
constexpr size_t length_of(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
constexpr bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Returns the code point at `at` and advances `at`.
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
// Returns the code point before `at` and moves `at` to its start.
inline char32_t previous_of(std::string_view text, size_t& at) {
  do {
    --at;
  } while (at > 0 && continues(text[at]));
  size_t from = at;
  return next_of(text, from);
}

void append(std::string& out, char32_t c);
size_t count_of(std::string_view text);  // number of code points

// Returns the number of bytes to the next code point of untrusted text, which must not be empty.
// `valid` is false if these bytes are an incomplete code point or an invalid byte. Such bytes are
// read as one U+FFFD (Unicode, chapter 3.9).
size_t step_over(std::string_view bytes, bool& valid);

// General categories, as in the tables of the package `tokenizers` (unicode_differences.h): \p{L},
// \p{N}, ...
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_word(char32_t c);             // \w of the Rust crate regex
bool is_white_space(char32_t c);      // White_Space
bool is_mark(char32_t c);             // M
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_control(char32_t c);          // Cc, Cf, Co, except white space of C
// P, and all other printable ASCII except letters, digits and space.
bool is_punctuation(char32_t c);
bool is_cjk(char32_t c);  // ideographs, as in BERT

// True if Python's repr() shows the code point unchanged: neither C nor Z, except space.
bool is_printable(char32_t c);

// True if normalizers use the decomposition and combining class of the code point. False for some
// code points that are newer than the tables of the package `tokenizers`.
bool is_normalized(char32_t c);

// Lower case without context, up to two code points. `second` is 0 except for U+0130.
struct Lower {
  char32_t first = 0;
  char32_t second = 0;
};
Lower lower(char32_t c);

}  // namespace bowline::text
