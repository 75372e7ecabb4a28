// Patterns of names.
#pragma once

#include <optional>
#include <string_view>

#include "core/status.h"

namespace bowline {

// "*" stands for any characters, "?" for one, which UTF-8 may write with several bytes. Takes at
// most as many steps as the product of the two lengths.
bool matches(std::string_view pattern, std::string_view name);

// The patterns that one with alternatives stands for: "{a,b}.w" for "a.w" and "b.w". "{}" is none
// of these.
// Errors  bad_argument: a brace has no partner or lies inside another pair, they are more than 256.
Result<std::vector<std::string>> alternatives(std::string_view pattern);

// Where in a name the number lies that "{}" of the pattern stands for: whole runs of decimal
// digits, the first that matches(). None: the pattern has no "{}", or does not match.
struct Digits {
  size_t begin = 0;
  size_t end = 0;
};
std::optional<Digits> number_in(std::string_view pattern, std::string_view name);

}  // namespace bowline
