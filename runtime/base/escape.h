// Text from outside, as people see it.
#pragma once

#include <string>
#include <string_view>

namespace bowline {

// Makes invisible characters visible, so that text cannot act on a terminal or look like other
// text: control characters (C0, DEL, C1) and bytes that are not UTF-8 become \n, \t, \r or \x1b;
// bidirectional controls, separators of lines and paragraphs, and characters without width or
// picture become \u{202e}. Everything else stays.
std::string escaped(std::string_view text);
// As escaped(), but newlines stay: text of several lines.
std::string escaped_lines(std::string_view text);
// A name in a listing. It is quoted and escaped if it is empty, or has a space, a comma, a colon, a
// quote, a backslash or a character that escaped() changes. Two names never look alike.
std::string listed_name(std::string_view name);

}  // namespace bowline
