// Removes the byte order mark that some programs write before UTF-8 text.
#pragma once

#include <string_view>

namespace bowline::command {

inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  return text;
}

}  // namespace bowline::command
