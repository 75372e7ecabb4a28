// Regular expressions of Oniguruma, which the tokenizers package uses, in the syntax of PCRE2.
//
// Source  Oniguruma, doc/RE and doc/UNICODE_PROPERTIES (syntax Ruby); PCRE2, pcre2pattern(3).
#pragma once

#include <string>
#include <string_view>

#include "bowline_text.h"

namespace bowline::text {

// An expression for PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE that matches what `expression` matches
// in Oniguruma. It spells out classes that differ (\w, \s, \h, POSIX brackets, scripts), unions and
// intersections of classes, and the options of groups. What is
// no expression of Oniguruma stays as it is: PCRE2 refuses it. Errors  unsupported: it means
// something else in PCRE2 and has no
// translation here; the construct is named.
Result<std::string> pcre2_of_oniguruma(std::string_view expression);

}  // namespace bowline::text
