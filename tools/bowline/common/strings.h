// Small helpers for text: numbers in it (base/parse.h), and lists as text.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "base/parse.h"
#include "base/utf8.h"

namespace bowline::command {

// The beginning of a text, without a part of a character: up to `most` bytes, and to the end of the
// character that is there.
inline std::string_view begin_of(std::string_view text, size_t most) {
  size_t end = 0;
  while (end < text.size() && end < most) {
    end += std::max<size_t>(1, utf8_length(text.substr(end)));
  }
  return text.substr(0, end);
}

// "a, b": `text` gives the text of an item.
template <class Range, class Text = std::identity>
std::string joined(Range&& items, Text text = {}, std::string_view between = ", ") {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    out += first ? "" : between;
    out += std::invoke(text, item);
    first = false;
  }
  return out;
}

}  // namespace bowline::command
