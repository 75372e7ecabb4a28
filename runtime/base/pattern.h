// The language of all patterns of names, in the library and in the flags of the command:
//
//   *      any characters
//   ?      one character, which UTF-8 may write with several bytes
//   {a,b}  a or b
//   {}     a number, where a function says so; else these two characters
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace bowline {

// Expands {a,b}: "{a,b}.w" is "a.w" and "b.w".
// Errors  bad_argument: a brace has no partner or is inside another pair, or there are more than
//         256 alternatives.
Result<std::vector<std::string>> alternatives(std::string_view pattern);
// Whether one alternative matches the whole name. Takes at most as many steps as the product of the
// two lengths.
bool matches(std::string_view alternative, std::string_view name);
bool matches_any(std::span<const std::string> alternatives, std::string_view name);

// Where in a name the number lies that "{}" of the pattern stands for: whole runs of decimal
// digits, the first that matches(). None: the pattern has no "{}", or does not match.
struct Digits {
  size_t begin = 0;
  size_t end = 0;
};
std::optional<Digits> number_in(std::string_view pattern, std::string_view name);

}  // namespace bowline
