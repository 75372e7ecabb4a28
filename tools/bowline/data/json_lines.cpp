#include "data/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "data/byte_order_mark.h"

namespace bowline::command {
namespace {

// ordered_json compares each key with all others of its object, and writes levels by recursion.
constexpr int kMostLevels = 100;
constexpr size_t kMostKeys = 4096;

}  // namespace

nlohmann::ordered_json parse_bounded(std::string_view text, bool& fits) {
  using Event = nlohmann::ordered_json::parse_event_t;
  fits = true;
  std::vector<size_t> keys;  // of the open objects
  const auto limit = [&](int depth, Event event, const nlohmann::ordered_json&) {
    if (fits && event == Event::object_start) {
      keys.push_back(0);
    } else if (fits && event == Event::object_end) {
      keys.pop_back();
    } else if (fits && event == Event::key) {
      fits = ++keys.back() <= kMostKeys;
    }
    fits = fits && depth <= kMostLevels;
    return fits;
  };
  return nlohmann::ordered_json::parse(text, limit);
}

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
    bool fits = true;
    auto row = parse_bounded(line, fits);
    BOWLINE_REQUIRE_CODE(
        fits, Code::bad_file,
        "{}:{}:1: The line has more than {} levels, or an object with more than {} "
        "keys.",
        name, number, kMostLevels, kMostKeys);
    return row;
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
