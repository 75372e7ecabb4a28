// Numbers in text from outside.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace bowline {

// The number that the whole text spells. Empty: it spells none, or one that T does not hold.
// `base`: (optional) of an integer.
template <class T, class... Base>
std::optional<T> number_in(std::string_view text, Base... base) {
  T out{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out, base...);
  return read.ec == std::errc() && read.ptr == end ? std::optional(out) : std::nullopt;
}

}  // namespace bowline
