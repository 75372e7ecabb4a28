// XXH3 with 64 bits, the checksum of model files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bowline::command {

// Sixteen hexadecimal digits.
std::string hash_text(std::string_view text);

}  // namespace bowline::command
