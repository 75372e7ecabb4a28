#include "data/columns.h"

#include <algorithm>

#include "base/status.h"

namespace bowline::command {

bool holds_examples(const std::string& name) {
  return name.ends_with(".csv") || name.ends_with(".tsv") || is_json_lines(name);
}

Status check_holds_examples(const std::string& name) {
  BOWLINE_REQUIRE_CODE(
      holds_examples(name), Code::bad_file,
      "The format of \"{}\" is unknown. Its name must end in .csv, .tsv, .jsonl or .ndjson.", name);
  return {};
}

bool is_json_lines(const std::string& name) {
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

Result<std::vector<CsvRow>> read_table(std::string_view bytes, const std::string& name) {
  BOWLINE_TRY_ASSIGN(std::vector<CsvRow> rows,
                     read_csv(bytes, name, name.ends_with(".tsv") ? '\t' : ','));
  BOWLINE_REQUIRE_CODE(!rows.empty(), Code::bad_file, "\"{}\" holds no header and no rows.", name);
  const size_t fields = rows.front().fields.size();
  for (const CsvRow& row : rows) {
    BOWLINE_REQUIRE_CODE(row.fields.size() == fields, Code::bad_file,
                         "{}:{}: The row has {} fields, the header {}.", name, row.line,
                         row.fields.size(), fields);
  }
  return rows;
}

Result<size_t> column_of(const CsvRow& header, const std::string& field, const char* flag,
                         const std::string& name) {
  const auto at = std::ranges::find(header.fields, field);
  BOWLINE_REQUIRE_CODE(at != header.fields.end(), Code::bad_file,
                       "{}:{}: There is no column \"{}\" ({}); there are {}.", name, header.line,
                       field, flag, listed(header.fields));
  BOWLINE_REQUIRE_CODE(std::find(at + 1, header.fields.end(), field) == header.fields.end(),
                       Code::bad_file, "{}:{}: There are several columns \"{}\" ({}).", name,
                       header.line, field, flag);
  return static_cast<size_t>(at - header.fields.begin());
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) {
      out.emplace_back(text.substr(at, end - at));
    }
    at = end + 1;
  }
  return out;
}

std::string listed(std::span<const std::string> names) {
  constexpr size_t kMost = 20;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    out += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  }
  return out + (names.size() > kMost ? ", ..." : "");
}

}  // namespace bowline::command
