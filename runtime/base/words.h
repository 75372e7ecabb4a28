// Short lists of names, as texts in which spaces separate the words.
#pragma once

#include <string_view>

#include "base/detail.h"

namespace bowline {

// True if `word` is one of the words.
constexpr bool is_one_of(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = words.find(' ', begin);
    if (words.substr(begin, end - begin) == word) {
      return true;
    }
    begin = end == std::string_view::npos ? words.size() + 1 : end + 1;
  }
  return false;
}

}  // namespace bowline
