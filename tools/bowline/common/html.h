// Escapes text for HTML, and creates parts of pages. Text from files, arguments and devices must
// pass through one of these functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bowline::command {

// As escaped(), with entities for <, >, & and both quotes. For text and for attribute values in
// quotes.
std::string html_text(std::string_view text);
// As html_text(), but keeps newlines.
std::string html_lines(std::string_view text);
// Returns JSON for a script element of type application/json. It is ASCII and cannot end the
// element or begin a comment. Invalid UTF-8 becomes U+FFFD.
std::string html_json(const nlohmann::json& value);

// A name and a value, both as text.
using Facts = std::vector<std::pair<std::string, std::string>>;
// A list of names with values. `kind`: a class of the style sheet.
std::string facts_html(const Facts& facts, std::string_view kind = "facts");

// A table. Its cells are text, except in the columns `markup`, where they are HTML. The columns
// `numbers` are aligned to the right.
struct Table {
  std::string caption;
  std::vector<std::string> head;
  std::vector<size_t> numbers = {};
  std::vector<size_t> markup = {};
  std::vector<std::vector<std::string>> rows = {};
  std::vector<std::string> ids = {};  // (optional) of the rows
};
std::string table_html(const Table& table);
// Puts the rows of a table into a region that scrolls. `kind`: attributes of the table.
std::string scrolled_html(std::string_view caption, std::string_view kind, std::string_view rows);
// Puts `html` into a collapsed block that a click on `summary` opens.
std::string folded_html(std::string_view summary, std::string_view html);
// A link to the element `id` of the page.
std::string link_html(std::string_view id, std::string_view text);
std::string paragraph_html(std::string_view text);

// Returns at most the first `most` bytes of a text, and says how long a longer text is.
std::string shortened(std::string_view text, size_t most);

// "1,234,567"
std::string grouped(uint64_t value);

}  // namespace bowline::command
