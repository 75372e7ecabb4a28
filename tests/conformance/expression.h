// Integer expressions over the variables of a case line.
#pragma once

#include <map>

#include "core/shape.h"

namespace bowline::conformance {

using Numbers = std::map<std::string, int64_t, std::less<>>;

// "2*n+1". Errors  bad_argument: a name that is not there, a division by zero, text that is left
// over.
Result<int64_t> evaluate(std::string_view text, const Numbers& numbers);

// Parts between top-level separators; brackets of all kinds nest.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace bowline::conformance
