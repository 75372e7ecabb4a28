// Recognizes files of other programs, for error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace bowline::detail::model {

// Returns the kind of a file from its first bytes, for example "a GGUF file". Returns an empty
// string if the kind is unknown. `file` is the whole file or its beginning.
std::string_view foreign_format(std::span<const std::byte> file);

}  // namespace bowline::detail::model
