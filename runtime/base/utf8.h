// UTF-8 from outside.
#pragma once

#include <cstddef>
#include <string_view>

namespace bowline {

// Bytes of the well-formed UTF-8 sequence at the begin of a text that is not empty; 0: it is not
// well-formed.
size_t utf8_length(std::string_view text);

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

// As valid_utf8, without control characters: text that may stand in a listing line.
bool valid_name(std::string_view text);

}  // namespace bowline
