// Text from outside that is shown to people: nothing in it can act on a terminal, be invisible, or pass for something else.
#pragma once

#include <string>
#include <string_view>

namespace bowline {

// The text with what cannot be seen made visible: control characters (C0, DEL, C1) and bytes that are not UTF-8
// as \n, \t, \r or \x1b; bidirectional controls, separators of lines and paragraphs, characters without
// width and without a picture as \u{202e}. All else stays as it is.
std::string escaped(std::string_view text);
// As escaped(), but newlines stay: text of several lines.
std::string escaped_lines(std::string_view text);

// A name in a listing: itself, or in double quotes and escaped where it is empty or has a space, a comma, a
// colon, a quote, a backslash or something that escaped() changes. Two names are never shown alike.
std::string listed_name(std::string_view name);

}  // namespace bowline
