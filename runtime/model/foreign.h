// Recognizes files of other programs, for error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bowline::detail::model {

// Returns the kind of a file from its first bytes, for example "a GGUF file". Returns an empty
// string if the kind is unknown. `head` is the beginning of a file of `file_bytes` bytes, or all of
// it.
std::string_view foreign_format(std::span<const std::byte> head, uint64_t file_bytes);

}  // namespace bowline::detail::model
