// Translates regular expressions of Oniguruma, which the package `tokenizers` uses, to PCRE2.
//
// Source  Oniguruma, doc/RE and doc/UNICODE_PROPERTIES (syntax Ruby); PCRE2, pcre2pattern(3).
#pragma once

#include <string>
#include <string_view>

#include "bowline_text.h"

namespace bowline::text {

// Returns an expression for PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE that matches the same texts as
// `expression` in Oniguruma. Rewrites classes that differ (\w, \s, \h, POSIX brackets, scripts),
// unions and intersections of classes, and options of groups. An invalid expression stays
// unchanged: PCRE2 rejects it.
// Errors  unsupported: a construct that has another meaning in PCRE2 and no translation; the
//         message names it.
Result<std::string> pcre2_of_oniguruma(std::string_view expression);

}  // namespace bowline::text
