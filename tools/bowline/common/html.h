// Text as a part of an HTML page, and the parts that pages are made of. What comes from a file, an
// argument or a device goes through one of these.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bowline::command {

// As escaped(), with <, >, &, and both quotes as entities: as text, or as the value of an attribute
// in double quotes.
std::string html_text(std::string_view text);
// The same where newlines are meant.
std::string html_lines(std::string_view text);
// For a script element of type application/json: ASCII, and nothing in it ends the element or
// begins a comment. Bytes that are not UTF-8 become U+FFFD.
std::string html_json(const nlohmann::json& value);

// A name and a value, both as text.
using Facts = std::vector<std::pair<std::string, std::string>>;
// A list of names with values. `kind`: a class of the style.
std::string facts_html(const Facts& facts, std::string_view kind = "facts");

// A table of texts. Columns in `numbers` are set to the right.
struct Table {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> numbers;
};
std::string table_html(const Table& table);
// The same behind a line that opens it.
std::string folded_html(std::string_view summary, std::string_view html);
std::string paragraph_html(std::string_view text);

// "1,234,567"
std::string grouped(uint64_t value);

}  // namespace bowline::command
