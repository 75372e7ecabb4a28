// Bytes as letters, RFC 4648.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bowline {

std::string to_base64(std::string_view bytes);
// Empty: the text is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace bowline
