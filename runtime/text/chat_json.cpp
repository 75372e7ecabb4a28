// Values as text: as JSON, and as Python prints them.
#include <bit>
#include <charconv>
#include <cmath>

#include "text/chat_value.h"
#include "text/unicode.h"

namespace bowline::text::chat {
namespace {

constexpr int kMostWrittenLevels = 100;

void append_hex(std::string& out, std::string_view begin, uint32_t code, int digits) {
  out += begin;
  for (int i = digits - 1; i >= 0; --i) {
    out += "0123456789abcdef"[code >> 4 * i & 15];
  }
}

class Writer {
 public:
  // `form` null: prints values as Python does.
  Writer(Heap& heap, const JsonForm* form)
      : heap_(heap), form_(form != nullptr ? *form : JsonForm()), is_json_(form != nullptr) {}

  Status add(const Value& v, int depth) {
    BOWLINE_TRY(heap_.step());
    BOWLINE_REQUIRE_FILE(out.size() <= Heap::kMostBytes, "A text has more than {} bytes.",
                         Heap::kMostBytes);
    BOWLINE_REQUIRE_FILE(depth <= kMostWrittenLevels, "A value {} has more than {} levels.",
                         is_json_ ? "for JSON" : "to print", kMostWrittenLevels);
    switch (v.kind) {
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        out += scalar(v);
        return {};
      case Kind::text:
        return add_text(v.text);
      case Kind::dict:
        return add_dict(*v.dict, depth);
      case Kind::list:
        if (v.is_plain_list()) {
          return add_list("[", *v.list, "]", depth);
        }
        break;
      case Kind::tuple:
        return is_json_ ? add_list("[", *v.list, "]", depth)
                        : add_list("(", *v.list, v.list->size() == 1 ? ",)" : ")", depth);
      default:
        break;
    }
    BOWLINE_REQUIRE_FILE(!is_json_, "JSON cannot represent {}.",
                         v.text.empty() ? described(v.kind) : v.text);
    if (v.kind == Kind::undefined) {
      out += "Undefined";
      return {};
    }
    if (v.is_view()) {
      out += v.text;
      return add_list("([", *v.list, "])", depth);
    }
    return failure("Printing {} is not supported.",
                   v.kind == Kind::list ? "a range" : described(v.kind));
  }

  std::string out;

 private:
  std::string scalar(const Value& v) const {
    switch (v.kind) {
      case Kind::none:
        return is_json_ ? "null" : "None";
      case Kind::boolean:
        return is_json_ ? (v.boolean ? "true" : "false") : (v.boolean ? "True" : "False");
      case Kind::integer:
        return std::to_string(v.integer);
      default:
        return !is_json_ || std::isfinite(v.real) ? real_text(v.real)
               : std::isnan(v.real)               ? "NaN"
               : v.real < 0                       ? "-Infinity"
                                                  : "Infinity";
    }
  }

  Status add_text(std::string_view text) {
    BOWLINE_TRY(heap_.step((is_json_ ? 6 : 10) * text.size()));
    const bool is_single = !is_json_ && (text.find('\'') == std::string_view::npos ||
                                         text.find('"') != std::string_view::npos);
    const char quote = is_single ? '\'' : '"';
    out += quote;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_of(text, at);
      const size_t simple = std::u32string_view(U"\n\r\t\b\f").find(c);
      if (c == static_cast<char32_t>(quote) || c == '\\') {
        out += {'\\', static_cast<char>(c)};
      } else if (simple < (is_json_ ? 5 : 3)) {
        out += {'\\', "nrtbf"[simple]};
      } else if (is_json_ ? c < 0x20 || (form_.ascii && c >= 0x7F) : !is_printable(c)) {
        add_code(c);
      } else {
        out += text.substr(begin, at - begin);
      }
    }
    out += quote;
    return {};
  }

  void add_code(char32_t c) {
    if (is_json_ && c >= 0x10000) {
      append_hex(out, "\\u", 0xD800 + ((c - 0x10000) >> 10), 4);
      append_hex(out, "\\u", 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
    } else if (!is_json_ && c < 0x100) {
      append_hex(out, "\\x", c, 2);
    } else {
      append_hex(out, c < 0x10000 ? "\\u" : "\\U", c, c < 0x10000 ? 4 : 8);
    }
  }

  Status add_list(std::string_view begin, const std::vector<Value>& list, std::string_view end,
                  int depth) {
    out += begin;
    for (const Value& item : list) {
      BOWLINE_TRY(begin_item(&item == list.data(), depth + 1));
      BOWLINE_TRY(add(item, depth + 1));
    }
    BOWLINE_TRY(list.empty() ? Status() : begin_line(depth));
    out += end;
    return {};
  }

  Status add_dict(std::vector<Pair> pairs, int depth) {
    if (form_.sorted) {
      // the steps of a comparison sort, for the limit
      BOWLINE_TRY(
          heap_.step(64 * static_cast<size_t>(std::bit_width(pairs.size())) * pairs.size()));
      BOWLINE_REQUIRE_FILE(sort_by_key(pairs), "The keys of a dict to sort are not all texts.");
    }
    out += '{';
    for (const Pair& pair : pairs) {
      BOWLINE_TRY(begin_item(&pair == pairs.data(), depth + 1));
      BOWLINE_TRY(add_key(pair.first, depth + 1));
      out += form_.behind_keys;
      BOWLINE_TRY(add(pair.second, depth + 1));
    }
    BOWLINE_TRY(pairs.empty() ? Status() : begin_line(depth));
    out += '}';
    return {};
  }

  Status add_key(const Value& key, int depth) {
    if (key.kind == Kind::text || !is_json_) {
      return add(key, depth);
    }
    BOWLINE_REQUIRE_FILE(key.is_numeric() || key.kind == Kind::none,
                         "A dict for JSON has a key that is {}.", described(key.kind));
    out += '"' + scalar(key) + '"';
    return {};
  }

  Status begin_item(bool first, int depth) {
    if (!first) {
      BOWLINE_TRY(heap_.step(form_.between_items.size()));
      out += form_.between_items;
    }
    return begin_line(depth);
  }

  Status begin_line(int depth) {
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
  const JsonForm form_;
  const bool is_json_;
};

Result<std::string> written(Heap& heap, const Value& v, const JsonForm* form) {
  Writer writer(heap, form);
  BOWLINE_TRY(writer.add(v, 0));
  return std::move(writer.out);
}

}  // namespace

// Python writes an exponent for less than 1e-4 and from 1e16 on.
std::string real_text(double r) {
  if (!std::isfinite(r)) {
    return std::isnan(r) ? "nan" : r < 0 ? "-inf" : "inf";
  }
  const double size = std::abs(r);
  const bool is_fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), r,
                    is_fixed ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string out(buffer, end.ptr);
  return is_fixed && out.find('.') == std::string::npos ? out + ".0" : out;
}

Result<std::string> to_json(Heap& heap, const Value& v, const JsonForm& form) {
  return written(heap, v, &form);
}

Result<std::string> repr(Heap& heap, const Value& v) { return written(heap, v, nullptr); }

}  // namespace bowline::text::chat
