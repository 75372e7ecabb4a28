// Text from outside.
#pragma once

#include "bowline.h"
#include "core/detail.h"

namespace bowline {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

// As valid_utf8, without control characters: text that may stand in a listing line.
bool valid_name(std::string_view text);

}  // namespace bowline
