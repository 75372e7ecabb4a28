#include "base/escape.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace bowline {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Characters of the Unicode Standard that are invisible or change the direction of the text:
// general categories Cc, Cf, Zl, Zp, Co, noncharacters, fillers and variation selectors.
constexpr Range kInvisible[] = {
    {0x0000, 0x001F},   {0x007F, 0x009F},    {0x00AD, 0x00AD},   {0x034F, 0x034F},
    {0x0600, 0x0605},   {0x061C, 0x061C},    {0x06DD, 0x06DD},   {0x070F, 0x070F},
    {0x115F, 0x1160},   {0x17B4, 0x17B5},    {0x180B, 0x180F},   {0x200B, 0x200F},
    {0x2028, 0x202E},   {0x2060, 0x206F},    {0x3164, 0x3164},   {0xE000, 0xF8FF},
    {0xFDD0, 0xFDEF},   {0xFE00, 0xFE0F},    {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
    {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},    {0x110BD, 0x110BD}, {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A}, {0xE0000, 0x10FFFF},
};

bool visible(uint32_t c) {
  return std::ranges::none_of(kInvisible, [c](Range r) { return c >= r.first && c <= r.last; });
}

uint32_t code_point(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(sequence[i]); };
  if (sequence.size() == 1) {
    return byte(0);
  }
  uint32_t c = byte(0) & (0x7Fu >> sequence.size());
  for (size_t i = 1; i < sequence.size(); ++i) {
    c = c << 6 | (byte(i) & 0x3Fu);
  }
  return c;
}

void append_hex(std::string& out, uint32_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) {
    out += "0123456789abcdef"[(value >> (4 * i)) & 0xF];
  }
}

void append_byte(std::string& out, uint8_t byte) {
  out += "\\x";
  append_hex(out, byte, 2);
}

void append_escaped(std::string& out, uint32_t c) {
  switch (c) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (c < 0x80) {
    append_byte(out, static_cast<uint8_t>(c));
    return;
  }
  int digits = 2;
  while (c >> (4 * digits) != 0) {
    ++digits;
  }
  out += "\\u{";
  append_hex(out, c, digits);
  out += '}';
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    const std::string_view sequence = text.substr(0, n);
    if (n == 0) {
      append_byte(out, static_cast<uint8_t>(text[0]));
    } else if (const uint32_t c = code_point(sequence); visible(c)) {
      out += sequence;
    } else {
      append_escaped(out, c);
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string escaped_lines(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t end = text.find('\n');
    out += escaped(text.substr(0, end));
    if (end == std::string_view::npos) {
      return out;
    }
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string listed_name(std::string_view name) {
  const std::string seen = escaped(name);
  if (!name.empty() && seen == name && name.find_first_of(" ,:\"\\") == std::string_view::npos) {
    return seen;
  }
  std::string out = "\"";
  while (!name.empty()) {
    const size_t plain = std::min(name.find_first_of("\"\\"), name.size());
    out += escaped(name.substr(0, plain));
    name.remove_prefix(plain);
    if (!name.empty()) {
      out += '\\';
      out += name[0];
      name.remove_prefix(1);
    }
  }
  return out + '"';
}

}  // namespace bowline
