#include "text/chat_strings.h"

#include "base/escape.h"

namespace bowline::text::chat {
namespace {

// Length of the first code point.
size_t bytes_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(n, text.size());
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of the last code point.
size_t last_bytes_of(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && is_continuation(text[text.size() - n])) {
    ++n;
  }
  return n;
}

bool is_one_of(std::string_view letter, std::optional<std::string_view> chars) {
  if (!chars) {
    return begins_with_space(letter);
  }
  for (size_t at = 0; at < chars->size(); at += bytes_of(chars->substr(at))) {
    if (chars->substr(at, bytes_of(chars->substr(at))) == letter) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool begins_with_space(std::string_view text) {
  const auto c = static_cast<unsigned char>(text[0]);
  if (c < 0x80) {
    return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  }
  const std::string_view letter = text.substr(0, bytes_of(text));
  // U+0085, U+00A0, U+1680, U+2028, U+2029, U+202F, U+205F, U+3000.
  for (const std::string_view space :
       {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
        "\xE2\x81\x9F", "\xE3\x80\x80"}) {
    if (letter == space) {
      return true;
    }
  }
  // U+2000 to U+200A.
  return letter.size() == 3 && letter.starts_with("\xE2\x80") &&
         static_cast<unsigned char>(letter[2]) <= 0x8A;
}

Result<Value> code_points(Heap& heap, std::string_view text) {
  BOWLINE_TRY(heap.step(text.size() * sizeof(Value)));
  std::vector<Value> out;
  for (size_t at = 0; at < text.size();) {
    const size_t n = bytes_of(text.substr(at));
    out.push_back(Value::of(text.substr(at, n)));
    at += n;
  }
  return heap.list(std::move(out));
}

int64_t length(std::string_view text) {
  return text.size() - std::ranges::count_if(text, is_continuation);
}

size_t offset_of(std::string_view text, int64_t n) {
  size_t at = 0;
  for (; n > 0 && at < text.size(); --n) {
    at += bytes_of(text.substr(at));
  }
  return at;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  while (side != Side::right && !text.empty() && is_one_of(text.substr(0, bytes_of(text)), chars)) {
    text.remove_prefix(bytes_of(text));
  }
  while (side != Side::left && !text.empty() &&
         is_one_of(text.substr(text.size() - last_bytes_of(text)), chars)) {
    text.remove_suffix(last_bytes_of(text));
  }
  return text;
}

namespace {

std::vector<Value> words(std::string_view text, int64_t most, bool from_right) {
  std::vector<Value> out;
  const Side begin = from_right ? Side::right : Side::left;
  for (text = strip(text, begin); !text.empty(); text = strip(text, begin)) {
    if (most >= 0 && static_cast<int64_t>(out.size()) == most) {
      out.push_back(Value::of(text));  // keeps the spaces at its other end
      break;
    }
    if (from_right) {
      size_t at = text.size();
      while (at > 0) {
        const size_t n = last_bytes_of(text.substr(0, at));
        if (begins_with_space(text.substr(at - n))) {
          break;
        }
        at -= n;
      }
      out.push_back(Value::of(text.substr(at)));
      text = text.substr(0, at);
    } else {
      size_t at = 0;
      while (at < text.size() && !begins_with_space(text.substr(at))) {
        at += bytes_of(text.substr(at));
      }
      out.push_back(Value::of(text.substr(0, at)));
      text.remove_prefix(at);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Value>> split(Heap& heap, std::string_view text,
                                 std::optional<std::string_view> separator, int64_t most,
                                 bool from_right) {
  BOWLINE_TRY(heap.step(8 * text.size()));
  std::vector<Value> out;
  if (!separator) {
    out = words(text, most, from_right);
  } else if (separator->empty()) {
    return failure("The separator of \"split\" is empty.");
  } else {
    while (most < 0 || static_cast<int64_t>(out.size()) < most) {
      const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
      if (at == std::string_view::npos) {
        break;
      }
      BOWLINE_TRY(heap.step(sizeof(Value)));
      const size_t behind = at + separator->size();
      out.push_back(Value::of(from_right ? text.substr(behind) : text.substr(0, at)));
      text = from_right ? text.substr(0, at) : text.substr(behind);
    }
    out.push_back(Value::of(text));
  }
  if (from_right) {
    std::ranges::reverse(out);
  }
  return out;
}

Result<std::string> replace(Heap& heap, std::string_view text, std::string_view from,
                            std::string_view to, int64_t most) {
  if (from.empty()) {
    return failure("Replacing an empty text is not supported.");
  }
  BOWLINE_TRY(heap.step(text.size()));
  std::string out;
  for (size_t at = text.find(from); at != std::string_view::npos && most != 0; --most) {
    BOWLINE_TRY(heap.step(at + to.size()));
    if (out.size() + to.size() > Heap::kMostBytes) {
      return failure("A text has more than " + std::to_string(Heap::kMostBytes) + " bytes.");
    }
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    at = text.find(from);
  }
  out += text;
  return out;
}

Result<std::vector<Value>> split_lines(Heap& heap, std::string_view text) {
  BOWLINE_TRY(heap.step(8 * text.size()));
  std::vector<Value> out;
  while (!text.empty()) {
    size_t at = 0, next = 0;
    for (; at < text.size(); at += bytes_of(text.substr(at))) {
      const std::string_view rest = text.substr(at);
      if (rest.starts_with("\r\n")) {
        next = 2;
      } else if (std::string_view("\n\r\v\f\x1c\x1d\x1e").find(rest[0]) != std::string_view::npos) {
        next = 1;
      } else if (rest.starts_with("\xC2\x85")) {
        next = 2;
      } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
        next = 3;
      }
      if (next != 0) {
        break;
      }
    }
    BOWLINE_TRY(heap.step(sizeof(Value)));
    out.push_back(Value::of(text.substr(0, at)));
    text.remove_prefix(std::min(at + next, text.size()));
  }
  return out;
}

Result<std::string> with_case(std::string_view text, Case to) {
  constexpr std::string_view kInFrontOfWords = "-({[< \t\n\r\f\v\x1c\x1d\x1e\x1f";
  std::string out;
  bool in_word = false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      return failure("The case of \"" + escaped(text.substr(0, 80)) +
                     "\" cannot be changed: only ASCII is supported.");
    }
    const bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
    const bool begins = out.empty() || kInFrontOfWords.find(out.back()) != std::string_view::npos;
    const bool up = to == Case::upper || (to == Case::title && !in_word) ||
                    (to == Case::words && begins) || (to == Case::capitalize && out.empty());
    out += up && is_lower    ? static_cast<char>(c - 32)
           : !up && is_upper ? static_cast<char>(c + 32)
                             : c;
    in_word = is_upper || is_lower;
  }
  return out;
}

std::vector<size_t> sliced(const Slice& slice, size_t size) {
  const auto n = static_cast<int64_t>(size);
  const int64_t step = std::clamp(slice.step, -n - 1, n + 1);
  const bool back = step < 0;
  const int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
  const auto clamped = [&](const std::optional<int64_t>& at, int64_t otherwise) {
    if (!at) {
      return otherwise;
    }
    return std::clamp(*at < 0 ? *at + n : *at, low, high);
  };
  const int64_t start = clamped(slice.start, back ? high : low);
  const int64_t stop = clamped(slice.stop, back ? low : high);
  std::vector<size_t> out;
  for (int64_t at = start; back ? at > stop : at < stop;) {
    out.push_back(static_cast<size_t>(at));
    const int64_t left = back ? at - stop : stop - at;
    if ((back ? -step : step) >= left) {
      break;
    }
    at += step;
  }
  return out;
}

}  // namespace bowline::text::chat
