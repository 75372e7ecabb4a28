#include "text/chat_strings.h"

#include "text/unicode.h"

namespace bowline::text::chat {
namespace {

// The first code point.
std::string_view first_of(std::string_view text) { return text.substr(0, length_of(text[0])); }

// The last code point.
std::string_view last_of(std::string_view text) {
  size_t at = text.size();
  (void)previous_of(text, at);
  return text.substr(at);
}

bool is_one_of(std::string_view letter, std::optional<std::string_view> chars) {
  return chars ? chars->find(letter) != std::string_view::npos : begins_with_space(letter);
}

bool ends_line(char32_t c) {
  return std::u32string_view(U"\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029").find(c) !=
         std::u32string_view::npos;
}

}  // namespace

bool begins_with_space(std::string_view text) {
  size_t at = 0;
  const char32_t c = next_of(text, at);
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

Result<Value> code_points(Heap& heap, std::string_view text) {
  BOWLINE_TRY(heap.step(text.size() * sizeof(Value)));
  std::vector<Value> out;
  for (size_t at = 0; at < text.size();) {
    out.push_back(Value::of(first_of(text.substr(at))));
    at += out.back().text.size();
  }
  return heap.list(std::move(out));
}

int64_t length(std::string_view text) { return static_cast<int64_t>(count_of(text)); }

size_t offset_of(std::string_view text, int64_t n) {
  size_t at = 0;
  for (; n > 0 && at < text.size(); --n) {
    at += first_of(text.substr(at)).size();
  }
  return at;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  while (side != Side::right && !text.empty() && is_one_of(first_of(text), chars)) {
    text.remove_prefix(first_of(text).size());
  }
  while (side != Side::left && !text.empty() && is_one_of(last_of(text), chars)) {
    text.remove_suffix(last_of(text).size());
  }
  return text;
}

namespace {

std::vector<Value> words(std::string_view text, int64_t most, bool from_right) {
  std::vector<Value> out;
  const Side front = from_right ? Side::right : Side::left;
  for (text = strip(text, front); !text.empty(); text = strip(text, front)) {
    if (most >= 0 && static_cast<int64_t>(out.size()) == most) {
      out.push_back(Value::of(text));  // keeps the spaces at its other end
      break;
    }
    const auto letter_behind = [&](size_t n) {
      return from_right ? last_of(text.substr(0, text.size() - n)) : first_of(text.substr(n));
    };
    size_t n = 0;  // bytes of the word
    while (n < text.size() && !begins_with_space(letter_behind(n))) {
      n += letter_behind(n).size();
    }
    const size_t begin = from_right ? text.size() - n : 0;
    out.push_back(Value::of(text.substr(begin, n)));
    text = from_right ? text.substr(0, begin) : text.substr(n);
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
  BOWLINE_REQUIRE_FILE(!from.empty(), "Replacing an empty text is not supported.");
  BOWLINE_TRY(heap.step(text.size()));
  std::string out;
  for (size_t at = text.find(from); at != std::string_view::npos && most != 0; --most) {
    BOWLINE_TRY(heap.step(at + to.size()));
    BOWLINE_REQUIRE_FILE(out.size() + to.size() <= Heap::kMostBytes,
                         "A text has more than {} bytes.", Heap::kMostBytes);
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
    size_t at = 0, next = 0;  // the end of the line, and the start of the next line
    while (next < text.size() && !ends_line(next_of(text, next))) {
      at = next;
    }
    next += text.substr(at).starts_with("\r\n") ? 1 : 0;
    BOWLINE_TRY(heap.step(sizeof(Value)));
    out.push_back(Value::of(text.substr(0, at)));
    text.remove_prefix(next);
  }
  return out;
}

Result<Value> with_case(Heap& heap, std::string_view text, Case to) {
  constexpr std::string_view kInFrontOfWords = "-({[< \t\n\r\f\v\x1c\x1d\x1e\x1f";
  std::string out;
  bool in_word = false;
  for (const char c : text) {
    BOWLINE_REQUIRE_FILE(static_cast<unsigned char>(c) < 0x80,
                         "The case of {} cannot be changed: only ASCII is supported.",
                         quoted(text));
    const bool begins = out.empty() || kInFrontOfWords.find(out.back()) != std::string_view::npos;
    const bool up = to == Case::upper || (to == Case::title && !in_word) ||
                    (to == Case::words && begins) || (to == Case::capitalize && out.empty());
    out += (up && is_lower(c)) || (!up && is_upper(c)) ? static_cast<char>(c ^ 0x20) : c;
    in_word = is_upper(c) || is_lower(c);
  }
  return heap.text(std::move(out));
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
