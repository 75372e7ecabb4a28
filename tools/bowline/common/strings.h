// Small helpers for text.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "base/parse.h"
#include "base/utf8.h"

namespace bowline::command {

// Returns the first `most` bytes of a text, extended to the end of the last character.
inline std::string_view begin_of(std::string_view text, size_t most) {
  size_t end = 0;
  while (end < text.size() && end < most) {
    end += std::max<size_t>(1, utf8_length(text.substr(end)));
  }
  return text.substr(0, end);
}

// Joins items: "a, b". `text` converts an item to text.
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

// Returns a pattern such as "model.layers.*.mlp.up_proj.weight", which matches the same weight of
// every layer.
inline std::string pattern_of(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c < '0' || c > '9') {
      out += c;
    } else if (out.empty() || out.back() != '*') {
      out += '*';
    }
  }
  return out;
}

}  // namespace bowline::command
