// Bytes as letters, RFC 4648.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bowline::command {

std::string to_base64(std::string_view bytes);
// None: it is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace bowline::command
