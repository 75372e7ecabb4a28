// str.format() and strftime() of Python.
#include <algorithm>
#include <charconv>
#include <clocale>
#include <cmath>
#include <ctime>

#include "base/parse.h"
#include "text/chat_functions.h"
#include "text/unicode.h"

namespace bowline::text::chat {
namespace {

constexpr int kMostWidth = 10'000;
constexpr int kMostPrecision = 100;

// [[fill]align][sign][0][width][,][.precision][type], Python's format specification mini-language.
struct Spec {
  std::string_view fill = " ";
  char align = 0;  // 0: the default of the kind
  char sign = '-';
  char group = 0;
  int width = 0;
  int precision = -1;
  char type = 0;
};

// Removes the number at the start of `text` and returns it.
int taken_number(std::string_view& text) {
  int n = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), n);
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return read.ec == std::errc() ? n : INT32_MAX;
}

bool begins_with_digit(std::string_view text) { return !text.empty() && is_digit(text[0]); }

Result<Spec> spec_of(std::string_view text) {
  const std::string_view whole = text;
  // Removes one of these letters at the start of the text. 0: there is none.
  const auto taken = [&](std::string_view letters) {
    const bool is = !text.empty() && letters.find(text[0]) != std::string_view::npos;
    const char letter = is ? text[0] : '\0';
    text.remove_prefix(is ? 1 : 0);
    return letter;
  };
  constexpr std::string_view kAligns = "<>^=";
  Spec s;
  const size_t first = text.empty() ? 0 : length_of(text[0]);
  if (first < text.size() && kAligns.find(text[first]) != std::string_view::npos) {
    s.fill = text.substr(0, first);
    text.remove_prefix(first);
  }
  s.align = taken(kAligns);
  if (const char sign = taken("+- ")) {
    s.sign = sign;
  }
  if (taken("0") && s.align == 0) {
    s.fill = "0";
    s.align = '=';
  }
  if (begins_with_digit(text)) {
    s.width = taken_number(text);
  }
  s.group = taken(",_");
  if (text.size() > 1 && text[0] == '.' && begins_with_digit(text.substr(1))) {
    text.remove_prefix(1);
    s.precision = taken_number(text);
  }
  if (!text.empty()) {
    s.type = text[0];
    text.remove_prefix(1);
  }
  BOWLINE_REQUIRE_FILE(text.empty() && s.width <= kMostWidth && s.precision <= kMostPrecision,
                       "The layout {} is not supported.", quoted(whole));
  return s;
}

// Pads `text` to the width. `sign`: bytes at the start that stay before the padding of '='.
std::string filled(const Spec& s, std::string_view text, size_t sign, char align) {
  const auto width = static_cast<size_t>(s.width);
  const size_t letters = count_of(text);
  const size_t missing = width > letters ? width - letters : 0;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) {
      out += s.fill;
    }
    return out;
  };
  const size_t at = align == '=' ? sign : 0;
  return std::string(text.substr(0, at)) + fill(before) + std::string(text.substr(at)) +
         fill(missing - before);
}

std::string grouped_digits(const std::string& digits, char mark) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    out += i > 0 && (end - i) % 3 == 0 ? std::string(1, mark) : "";
    out += digits[i];
  }
  return out + digits.substr(end);
}

// The digits of a number without its sign; empty: the type is not supported.
std::string digits_of(const Spec& s, const Value& v) {
  const std::string_view real_types = "eEfFgG%";
  if (v.kind != Kind::real && real_types.find(s.type) == std::string_view::npos) {
    const int base = s.type == 0 || s.type == 'd'     ? 10
                     : s.type == 'x' || s.type == 'X' ? 16
                     : s.type == 'o'                  ? 8
                     : s.type == 'b'                  ? 2
                                                      : 0;
    if (base == 0 || s.precision >= 0 || (s.group == ',' && base != 10) ||
        v.number() == INT64_MIN) {
      return "";
    }
    char buffer[72];
    const auto written = std::to_chars(buffer, buffer + sizeof(buffer), std::abs(v.number()), base);
    std::string out(buffer, written.ptr);
    if (s.type == 'X') {
      std::ranges::transform(out, out.begin(),
                             [](char c) { return c >= 'a' ? static_cast<char>(c - 32) : c; });
    }
    return out;
  }
  const double r = std::abs(v.as_real());
  if (s.type == 0) {
    return s.precision < 0 ? real_text(r) : "";
  }
  if (real_types.find(s.type) == std::string_view::npos || s.type == 'G' || s.type == 'E') {
    return "";
  }
  const int precision = s.precision < 0 ? 6 : s.precision;
  char buffer[512];
  const char type = s.type == '%' || s.type == 'F' ? 'f' : s.type;
  const auto format = type == 'f'   ? std::chars_format::fixed
                      : type == 'e' ? std::chars_format::scientific
                                    : std::chars_format::general;
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), s.type == '%' ? r * 100 : r,
                                     format, type == 'g' ? std::max(precision, 1) : precision);
  return written.ec == std::errc() ? std::string(buffer, written.ptr) + (s.type == '%' ? "%" : "")
                                   : "";
}

Result<std::string> formatted_number(const Spec& s, const Value& v, std::string_view layout) {
  std::string digits = digits_of(s, v);
  const bool zeros_in_groups = s.group != 0 && s.fill == "0" && s.align == '=';
  BOWLINE_REQUIRE_FILE(!digits.empty() && !zeros_in_groups,
                       "The layout {} of a number is not supported.", quoted(layout));
  if (s.group != 0) {
    digits = grouped_digits(digits, s.group);
  }
  const bool negative = v.kind == Kind::real ? std::signbit(v.real) : v.number() < 0;
  const std::string sign = negative ? "-" : s.sign == '-' ? "" : std::string(1, s.sign);
  return filled(s, sign + digits, sign.size(), s.align == 0 ? '>' : s.align);
}

Result<std::string> laid_out(Heap& heap, const Value& v, std::string_view layout) {
  BOWLINE_TRY(heap.step(layout.size()));
  if (layout.empty()) {
    BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap, v));
    return std::string(text);
  }
  BOWLINE_TRY_ASSIGN(const Spec s, spec_of(layout));
  BOWLINE_TRY(heap.step(64 * static_cast<uint64_t>(s.width)));
  if (v.is_numeric()) {
    return formatted_number(s, v, layout);
  }
  BOWLINE_REQUIRE_FILE(v.kind == Kind::text && s.sign == '-' && s.group == 0 && s.align != '=' &&
                           (s.type == 0 || s.type == 's'),
                       "The layout {} of {} is not supported.", quoted(layout), described(v.kind));
  const size_t letters = s.precision < 0 ? v.text.size() : offset_of(v.text, s.precision);
  return filled(s, v.text.substr(0, letters), 0, s.align == 0 ? '<' : s.align);
}

class Fields {
 public:
  Fields(Renderer& r, Arguments& a) : r_(r), a_(a) {}

  // Formats the field between { and }.
  Result<std::string> text_of(std::string_view field) {
    const size_t end = field.find_first_of("!:");
    std::string_view name = field.substr(0, end);
    std::string_view rest = end == std::string_view::npos ? "" : field.substr(end);
    BOWLINE_TRY_ASSIGN(Value v, value_of(name));
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        return bad(field);
      }
      if (rest[1] == 's') {
        BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r_.heap(), v));
        v = Value::of(text);
      } else if (rest[1] == 'r') {
        BOWLINE_TRY_ASSIGN(std::string text, repr(r_.heap(), v));
        BOWLINE_TRY_ASSIGN(v, r_.heap().text(std::move(text)));
      } else {
        return bad(field);
      }
      rest.remove_prefix(2);
    }
    return laid_out(r_.heap(), v, rest.empty() ? "" : rest.substr(1));
  }

 private:
  static Status bad(std::string_view field) {
    return failure("The field {} of a layout is not valid, or not supported.", quoted(field));
  }

  Result<Value> value_of(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, end);
    const Value* found = nullptr;
    if (first.empty() || begins_with_digit(first)) {
      const auto n = first.empty() ? next_++ : number_in<int>(first);
      // As in Python: a layout has either "{}" or "{0}", not both.
      if (!n || (first.empty() && numbered_) || (!first.empty() && next_ > 0)) {
        return bad(name);
      }
      numbered_ = numbered_ || !first.empty();
      found = static_cast<size_t>(*n) < a_.positional.size()
                  ? &a_.positional[static_cast<size_t>(*n)]
                  : nullptr;
    } else {
      const auto at = std::ranges::find(a_.named, first, [](const auto& p) { return p.first; });
      found = at == a_.named.end() ? nullptr : &at->second;
    }
    BOWLINE_REQUIRE_FILE(found != nullptr, "A layout asks for the value {}, which it is not given.",
                         quoted(first));
    Value v = *found;
    for (std::string_view path = name.substr(end); !path.empty();) {
      BOWLINE_TRY_ASSIGN(v, step_into(v, path));
    }
    return v;
  }

  // Removes ".name" or "[key]" from the start of the path, and returns this part of `v`.
  Result<Value> step_into(const Value& v, std::string_view& path) {
    const bool is_item = path[0] == '[';
    path.remove_prefix(1);
    const size_t end = std::min(path.find_first_of(is_item ? "]" : ".["), path.size());
    const std::string_view key = path.substr(0, end);
    path.remove_prefix(end);
    if (key.empty() || (is_item && path.empty())) {
      return bad(key);
    }
    if (!is_item) {
      return r_.attribute(v, key);
    }
    path.remove_prefix(1);
    const auto n = begins_with_digit(key) ? number_in<int64_t>(key) : std::nullopt;
    return r_.item(v, n ? Value::of(*n) : Value::of(key));
  }

  Renderer& r_;
  Arguments& a_;
  int next_ = 0;
  bool numbered_ = false;
};

// Formats a directive of strftime() with its flag, in the locale "C".
Result<std::string> time_part(std::string_view directive, const std::tm& parts) {
  const std::string format = "%" + std::string(directive);
  const locale_t c = newlocale(LC_ALL_MASK, "C", nullptr);
  char buffer[128];
  const size_t n = c == nullptr ? 0 : strftime_l(buffer, sizeof(buffer), format.c_str(), &parts, c);
  if (c != nullptr) {
    freelocale(c);
  }
  return std::string(buffer, n);
}

}  // namespace

Result<Value> formatted(Renderer& r, const Value& v, Arguments& a) {
  const std::string_view layout = v.text;
  Fields fields(r, a);
  std::string out;
  for (size_t at = 0; at < layout.size();) {
    BOWLINE_TRY(r.heap().step());
    const char c = layout[at];
    const bool is_double = at + 1 < layout.size() && layout[at + 1] == c;
    if ((c != '{' && c != '}') || is_double) {
      out += c;
      at += c == '{' || c == '}' ? 2 : 1;
      continue;
    }
    const size_t end = layout.find_first_of("{}", at + 1);
    BOWLINE_REQUIRE_FILE(c != '}' && end != std::string_view::npos && layout[end] != '{',
                         "The braces of a layout do not match, or are nested.");
    BOWLINE_TRY_ASSIGN(const std::string text, fields.text_of(layout.substr(at + 1, end - at - 1)));
    BOWLINE_TRY(r.heap().step(text.size()));
    out += text;
    BOWLINE_REQUIRE_FILE(out.size() <= Heap::kMostBytes, "The result of a layout is too long.");
    at = end + 1;
  }
  a.rest(0);  // unused arguments are allowed
  return r.heap().text(std::move(out));
}

Result<std::string> time_text(Heap& heap, std::string_view layout, int64_t now) {
  std::tm parts = {};
  const std::time_t seconds = now;
  BOWLINE_REQUIRE_FILE(gmtime_r(&seconds, &parts) != nullptr, "The time is out of range.");
  constexpr std::string_view kDirectives = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyY%";
  std::string out;
  for (size_t i = 0; i < layout.size(); ++i) {
    BOWLINE_TRY(heap.step());
    if (layout[i] != '%') {
      out += layout[i];
      continue;
    }
    BOWLINE_TRY(heap.step(512));  // a directive costs as much as this number of bytes
    const size_t flag = i + 1 < layout.size() && layout[i + 1] == '-' ? 1 : 0;
    const char directive = i + 1 + flag < layout.size() ? layout[i + 1 + flag] : '\0';
    if (directive == 'f' && flag == 0) {
      out += "000000";  // microseconds
    } else if ((directive == 'z' || directive == 'Z') && flag == 0) {
      // as in Python: empty for a time without a time zone
    } else if (directive != '\0' && kDirectives.find(directive) != std::string_view::npos) {
      BOWLINE_TRY_ASSIGN(const std::string part, time_part(layout.substr(i + 1, 1 + flag), parts));
      out += part;
    } else {
      return failure("The layout {} of a time is not supported.", quoted(layout));
    }
    i += 1 + flag;
  }
  return out;
}

}  // namespace bowline::text::chat
