// Names that a mistyped word was probably meant to be, for messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bowline {

// Suggests up to three of `names` for `word`, nearest first: " Did you mean \"Linear\"?". If none
// is near, lists all of them where they are few: " There are \"axis\" and \"eps\".", else returns
// "".
std::string suggestion(std::string_view word, std::span<const std::string_view> names);

// The one of `names` that is nearest to `word`, or empty if none is near.
std::string nearest(std::string_view word, std::span<const std::string> names);

}  // namespace bowline
