// XXH3, 64 bits: what model files have as checksums.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bowline::command {

// Sixteen hexadecimal digits.
std::string hash_text(std::string_view text);

}  // namespace bowline::command
