// Values as text: as JSON, and as Python prints them.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "text/chat_value.h"
#include "text/unicode.h"

namespace bowline::text::chat {
namespace {

constexpr int kMostJsonLevels = 100;

void append_hex(std::string& out, uint32_t code, int digits) {
  for (int i = digits - 1; i >= 0; --i) {
    out += "0123456789abcdef"[code >> 4 * i & 15];
  }
}

Status require_size(const std::string& out) {
  return out.size() <= Heap::kMostBytes
             ? Status()
             : failure("A text has more than " + std::to_string(Heap::kMostBytes) + " bytes.");
}

}  // namespace

// The shortest digits that convert back to the same value, in the format of Python.
std::string real_text(double r) {
  if (std::isnan(r)) {
    return "nan";
  }
  if (std::isinf(r)) {
    return r < 0 ? "-inf" : "inf";
  }
  char buffer[64];
  const auto written =
      std::to_chars(buffer, buffer + sizeof(buffer), r, std::chars_format::scientific);
  std::string_view all(buffer, static_cast<size_t>(written.ptr - buffer));
  std::string out = all.starts_with('-') ? "-" : "";
  all.remove_prefix(out.size());
  const size_t e = all.find('e');
  int exponent = 0;
  const char* const digits_of_e = all.data() + e + (all[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_e, all.data() + all.size(), exponent);
  std::string digits(all.substr(0, 1));
  if (e > 1) {
    digits += all.substr(2, e - 2);
  }
  const auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1) + (n > 1 ? "." + digits.substr(1) : "");
    out += exponent < 0 ? "e-" : "e+";
    const std::string power = std::to_string(std::abs(exponent));
    return out + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  if (n <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

class Json {
 public:
  Json(Heap& heap, const JsonForm& form) : heap_(heap), form_(form) {}

  Status add(const Value& v, int depth) {
    BOWLINE_TRY(heap_.step());
    BOWLINE_TRY(require_size(out));
    if (depth > kMostJsonLevels) {
      return failure("A value for JSON has more than " + std::to_string(kMostJsonLevels) +
                     " levels.");
    }
    switch (v.kind) {
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        out += scalar(v);
        return {};
      case Kind::text:
        return add_text(v.text);
      case Kind::list:
      case Kind::tuple:
        if (v.text.empty()) {
          return add_list(*v.list, depth);
        }
        break;
      case Kind::dict:
        return add_dict(*v.dict, depth);
      default:
        break;
    }
    return failure("JSON cannot represent " +
                   std::string(v.text.empty() ? described(v.kind) : v.text) + ".");
  }

  std::string out;

 private:
  static std::string scalar(const Value& v) {
    if (v.kind == Kind::none) {
      return "null";
    }
    if (v.kind == Kind::boolean) {
      return v.boolean ? "true" : "false";
    }
    if (v.kind == Kind::integer) {
      return std::to_string(v.integer);
    }
    return std::isnan(v.real)   ? "NaN"
           : std::isinf(v.real) ? (v.real < 0 ? "-Infinity" : "Infinity")
                                : real_text(v.real);
  }

  Status add_text(std::string_view text) {
    BOWLINE_TRY(heap_.step(6 * text.size()));
    out += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_of(text, at);
      const size_t simple = std::u32string_view(U"\"\\\n\r\t\b\f").find(c);
      if (simple != std::u32string_view::npos) {
        out += '\\';
        out += "\"\\nrtbf"[simple];
      } else if (c < 0x20 || (form_.ascii && c >= 0x7F && c < 0x10000)) {
        out += "\\u";
        append_hex(out, c, 4);
      } else if (form_.ascii && c >= 0x10000) {
        out += "\\u";
        append_hex(out, 0xD800 + ((c - 0x10000) >> 10), 4);
        out += "\\u";
        append_hex(out, 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
      } else {
        out += text.substr(begin, at - begin);
      }
    }
    out += '"';
    return {};
  }

  Status add_list(const std::vector<Value>& list, int depth) {
    out += '[';
    for (const Value& item : list) {
      BOWLINE_TRY(item_begin(&item == list.data(), depth + 1));
      BOWLINE_TRY(add(item, depth + 1));
    }
    return end(']', list.empty(), depth);
  }

  Result<std::vector<Pair>> in_order(const std::vector<Pair>& dict) {
    std::vector<Pair> pairs = dict;
    if (!form_.sorted) {
      return pairs;
    }
    // the steps of a comparison sort, for the limit
    const size_t bits = static_cast<size_t>(std::bit_width(pairs.size()));
    BOWLINE_TRY(heap_.step(64 * bits * pairs.size()));
    const bool texts =
        std::ranges::all_of(pairs, [](const Pair& p) { return p.first.kind == Kind::text; });
    const bool numbers =
        std::ranges::all_of(pairs, [](const Pair& p) { return p.first.is_number(); });
    if (!texts && !numbers) {
      return failure("The keys of a dict to sort are not all texts.");
    }
    std::ranges::stable_sort(pairs, [texts](const Pair& a, const Pair& b) {
      return texts ? a.first.text < b.first.text : a.first.number() < b.first.number();
    });
    return pairs;
  }

  Status add_dict(const std::vector<Pair>& dict, int depth) {
    BOWLINE_TRY_ASSIGN(const std::vector<Pair> pairs, in_order(dict));
    out += '{';
    for (const Pair& pair : pairs) {
      const Value& key = pair.first;
      BOWLINE_TRY(item_begin(&pair == pairs.data(), depth + 1));
      if (key.kind == Kind::text) {
        BOWLINE_TRY(add_text(key.text));
      } else if (key.is_numeric() || key.kind == Kind::none) {
        out += '"' + scalar(key) + '"';
      } else {
        return failure("A dict for JSON has a key that is " + std::string(described(key.kind)) +
                       ".");
      }
      out += form_.behind_keys;
      BOWLINE_TRY(add(pair.second, depth + 1));
    }
    return end('}', pairs.empty(), depth);
  }

  Status item_begin(bool first, int depth) {
    if (!first) {
      BOWLINE_TRY(heap_.step(form_.between_items.size()));
      out += form_.between_items;
    }
    return line(depth);
  }

  Status end(char bracket, bool empty, int depth) {
    if (!empty) {
      BOWLINE_TRY(line(depth));
    }
    out += bracket;
    return {};
  }

  Status line(int depth) {
    if (form_.indent) {
      BOWLINE_TRY(heap_.step(64 * form_.indent->size() * static_cast<uint64_t>(depth)));
      out += '\n';
      for (int i = 0; i < depth; ++i) {
        out += *form_.indent;
      }
    }
    return {};
  }

  Heap& heap_;
  const JsonForm& form_;
};

class Repr {
 public:
  explicit Repr(Heap& heap) : heap_(heap) {}

  Status add(const Value& v, int depth) {
    BOWLINE_TRY(heap_.step());
    BOWLINE_TRY(require_size(out));
    if (depth > kMostJsonLevels) {
      return failure("A value to print has more than " + std::to_string(kMostJsonLevels) +
                     " levels.");
    }
    switch (v.kind) {
      case Kind::undefined:
        out += "Undefined";
        return {};
      case Kind::none:
        out += "None";
        return {};
      case Kind::boolean:
        out += v.boolean ? "True" : "False";
        return {};
      case Kind::integer:
        out += std::to_string(v.integer);
        return {};
      case Kind::real:
        out += real_text(v.real);
        return {};
      case Kind::text:
        return add_text(v.text);
      case Kind::list:
        if (v.is_plain_list()) {
          return add_items('[', *v.list, ']', depth);
        }
        if (v.is_view()) {
          out += v.text;
          BOWLINE_TRY(add_items("([", *v.list, "])", depth));
          return {};
        }
        return failure("Printing a range is not supported.");
      case Kind::tuple:
        return add_items("(", *v.list, v.list->size() == 1 ? ",)" : ")", depth);
      case Kind::dict:
        return add_dict(*v.dict, depth);
      default:
        return failure("Printing " + std::string(described(v.kind)) + " is not supported.");
    }
  }

  std::string out;

 private:
  Status add_items(char begin, const std::vector<Value>& items, char end, int depth) {
    return add_items(std::string_view(&begin, 1), items, std::string_view(&end, 1), depth);
  }

  Status add_items(std::string_view begin, const std::vector<Value>& items, std::string_view end,
                   int depth) {
    out += begin;
    for (const Value& item : items) {
      out += &item == items.data() ? "" : ", ";
      BOWLINE_TRY(add(item, depth + 1));
    }
    out += end;
    return {};
  }

  Status add_dict(const std::vector<Pair>& dict, int depth) {
    out += '{';
    for (const Pair& pair : dict) {
      out += &pair == dict.data() ? "" : ", ";
      BOWLINE_TRY(add(pair.first, depth + 1));
      out += ": ";
      BOWLINE_TRY(add(pair.second, depth + 1));
    }
    out += '}';
    return {};
  }

  Status add_text(std::string_view text) {
    BOWLINE_TRY(heap_.step(10 * text.size()));
    const char quote =
        text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos
            ? '"'
            : '\'';
    out += quote;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_of(text, at);
      if (c == static_cast<char32_t>(quote) || c == '\\') {
        out += '\\';
        out += static_cast<char>(c);
      } else if (c == '\n' || c == '\r' || c == '\t') {
        out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      } else if (is_printable(c)) {
        out += text.substr(begin, at - begin);
      } else {
        out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
        append_hex(out, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
      }
    }
    out += quote;
    return {};
  }

  Heap& heap_;
};

}  // namespace

Result<std::string> to_json(Heap& heap, const Value& v, const JsonForm& form) {
  Json json(heap, form);
  BOWLINE_TRY(json.add(v, 0));
  return std::move(json.out);
}

Result<std::string> repr(Heap& heap, const Value& v) {
  Repr text(heap);
  BOWLINE_TRY(text.add(v, 0));
  return std::move(text.out);
}

}  // namespace bowline::text::chat
