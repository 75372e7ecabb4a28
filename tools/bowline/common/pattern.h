// Patterns over the names of parameters.
#pragma once

#include <string_view>

namespace bowline::command {

// "*" stands for any characters, "?" for one.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace bowline::command
