#include "data/json_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "data/byte_order_mark.h"

namespace bowline::command {
namespace {

// Returns the column of a byte, in characters from 1.
size_t column_of(std::string_view line, size_t byte) {
  const std::string_view before = line.substr(0, std::min(byte, line.size()));
  return 1 + static_cast<size_t>(std::ranges::count_if(
                 before, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Result<nlohmann::ordered_json> parse(std::string_view line, const std::string& name,
                                     size_t number) {
  try {
    return nlohmann::ordered_json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    // error.byte is the number of the last byte that was read, from 1.
    const size_t byte = error.byte == 0 ? 0 : error.byte - 1;
    return Status(Code::bad_file,
                  fmt::format("{}:{}:{}: The line is not valid JSON from here on{}.", name, number,
                              column_of(line, byte), byte >= line.size() ? ": it ends" : ""));
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::bad_file,
                  fmt::format("{}:{}:1: The line has a number out of range.", name, number));
  }
}

}  // namespace

Status read_json_lines(
    std::string_view text, const std::string& name,
    const std::function<Status(const nlohmann::ordered_json& row, size_t line)>& take) {
  text = without_byte_order_mark(text);
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const nlohmann::ordered_json row, parse(line, name, number));
    BOWLINE_REQUIRE_CODE(row.is_object(), Code::bad_file,
                         "{}:{}:1: The line holds no JSON object, but {}.", name, number,
                         row.type_name());
    if (const Status taken = take(row, number); !taken.ok()) {
      return Status(Code::bad_file, fmt::format("{}:{}: {}", name, number, taken.message()));
    }
  }
  return {};
}

}  // namespace bowline::command
