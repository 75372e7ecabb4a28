#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode_differences.h"

namespace bowline::text {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool differs(char32_t c, UnicodeDifference what) {
  const auto* const end = std::end(kUnicodeDifferences);
  const auto* const at =
      std::ranges::lower_bound(kUnicodeDifferences, c, {}, &UnicodeDifferences::last);
  return at != end && c >= at->first && (at->what & what) != 0;
}

bool is_ascii_letter(char32_t c) { return (c | 0x20) - 'a' < 26; }
bool is_ascii_number(char32_t c) { return c - '0' < 10; }

// Valid range of the second byte after a lead byte.
struct SecondByte {
  uint8_t least;
  uint8_t most;
};
SecondByte second_byte(uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

}  // namespace

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

size_t count_of(std::string_view text) {
  size_t n = 0;
  for (const char byte : text) {
    n += continues(byte) ? 0 : 1;
  }
  return n;
}

size_t step_over(std::string_view bytes, bool& valid) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  valid = lead < 0x80;
  if (lead < 0xC2 || lead > 0xF4) {
    return 1;
  }
  const size_t length = length_of(bytes[0]);
  const SecondByte second = second_byte(lead);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : uint8_t{0};
    if (i == 1 ? byte < second.least || byte > second.most : (byte & 0xC0) != 0x80) {
      return i;
    }
  }
  valid = true;
  return length;
}

bool is_letter(char32_t c) {
  if (c < 0x80) {
    return is_ascii_letter(c);
  }
  const utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
         (k == UTF8PROC_CATEGORY_CN && differs(c, kIsLetter));
}

bool is_number(char32_t c) {
  if (c < 0x80) {
    return is_ascii_number(c);
  }
  const utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) ||
         (k == UTF8PROC_CATEGORY_CN && differs(c, kIsNumber));
}

bool is_mark(char32_t c) {
  if (c < 0x80) {
    return false;
  }
  const utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME) != differs(c, kMarkDiffers);
}

bool is_printable(char32_t c) {
  if (c < 0x80) {
    return c >= 0x20 && c != 0x7F;
  }
  const utf8proc_category_t k = category(c);
  return k != UTF8PROC_CATEGORY_CN && (k < UTF8PROC_CATEGORY_ZS || k > UTF8PROC_CATEGORY_CO);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x80 && (category(c) == UTF8PROC_CATEGORY_MN) != differs(c, kNonspacingDiffers);
}

bool is_normalized(char32_t c) { return !differs(c, kNotNormalized); }

bool is_word(char32_t c) {
  if (c < 0x80) {
    return is_ascii_letter(c) || is_ascii_number(c) || c == '_';
  }
  // Alphabetic, M, Nd, Pc, Join_Control. Alphabetic is L, Nl, most M, and letters among the
  // symbols.
  const utf8proc_category_t k = category(c);
  return is_letter(c) || (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME) ||
         k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC ||
         c == 0x200C || c == 0x200D || (k == UTF8PROC_CATEGORY_CN && differs(c, kIsWord)) ||
         (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) {
    return c == ' ' || (c >= '\t' && c <= '\r');
  }
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_control(char32_t c) {
  if (c < 0x80) {
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
  }
  const utf8proc_category_t k = category(c);
  return (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO) !=
         differs(c, kControlDiffers);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !is_ascii_number(c);
  }
  const utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO) !=
         differs(c, kPunctuationDiffers);
}

bool is_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

Lower lower(char32_t c) {
  if (c < 0x80) {
    return {c - 'A' < 26 ? c | 0x20 : c};
  }
  if (c == 0x130) {
    return {'i', 0x307};
  }
  return {static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)))};
}

}  // namespace bowline::text
