#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
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

}  // namespace

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;  // bytes
  out += static_cast<char>(0xFF00 >> (more + 1) | c >> 6 * more);
  for (int i = more - 1; i >= 0; --i) {
    out += static_cast<char>(0x80 | (c >> 6 * i & 0x3F));
  }
}

size_t count_of(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, continues));
}

size_t step_over(std::string_view bytes, bool& valid) {
  const size_t whole = utf8_length(bytes);
  valid = whole > 0;
  // Two or three bytes are an incomplete code point if more bytes can complete them.
  for (size_t n = 3; !valid && n > 1; --n) {
    char completed[] = {'\x80', '\x80', '\x80', '\x80'};
    if (bytes.copy(completed, n) == n && utf8_length({completed, 4}) > n) {
      return n;
    }
  }
  return std::max<size_t>(whole, 1);
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
