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
// double quotes.
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

// A table of texts. Columns in `numbers` are aligned to the right.
struct Table {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> numbers;
};
std::string table_html(const Table& table);
// Puts `html` into a collapsed block that a click on `summary` opens.
std::string folded_html(std::string_view summary, std::string_view html);
std::string paragraph_html(std::string_view text);

// "1,234,567"
std::string grouped(uint64_t value);

}  // namespace bowline::command
