// Files of other programs, so that a refusal can say what was given instead.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace bowline::detail::model {

// "a GGUF file" by how the file begins; empty where nothing is recognised. The bytes are the whole
// file or its begin.
std::string_view foreign_format(std::span<const std::byte> file);

}  // namespace bowline::detail::model
