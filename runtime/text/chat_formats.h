// The built-in chat formats.
#pragma once

#include <span>
#include <string_view>

namespace bowline::text::chat {

struct NamedFormat {
  std::string_view name;
  std::string_view text;
};
std::span<const NamedFormat> named_formats();

}  // namespace bowline::text::chat
