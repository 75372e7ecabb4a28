// Integer expressions over the variables of a case line.
#pragma once

#include <map>

#include "core/shape.h"

namespace bowline::conformance {

using Numbers = std::map<std::string, int64_t, std::less<>>;

// Evaluates "2*n+1".
// Errors  bad_argument: an unknown name, a division by zero, or text behind the expression.
Result<int64_t> evaluate(std::string_view text, const Numbers& numbers);

// Splits at top-level separators. Brackets of all kinds nest.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace bowline::conformance
