// Patterns of names.
#pragma once

#include <string_view>

namespace bowline {

// "*" stands for any characters, "?" for one, which UTF-8 may write with several bytes. Takes at most as many steps as the product
// of the two lengths.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace bowline
