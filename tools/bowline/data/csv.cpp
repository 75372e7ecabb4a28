#include "data/csv.h"

#include <csv.h>

#include <algorithm>

#include "base/status.h"
#include "data/byte_order_mark.h"

namespace bowline::command {
namespace {

struct Reader {
  csv_parser parser;
  std::vector<CsvRow> rows;
  CsvRow row;
  size_t line = 1;  // of the bytes that are being parsed

  Reader() { csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI); }
  ~Reader() { csv_free(&parser); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

void take_field(void* bytes, size_t size, void* reader) {
  static_cast<Reader*>(reader)->row.fields.emplace_back(static_cast<const char*>(bytes), size);
}

void take_row(int, void* reader) {
  auto& r = *static_cast<Reader*>(reader);
  r.rows.push_back(std::move(r.row));
  r.row = {};
}

// Spaces around a field are part of the field.
int is_no_space(unsigned char) { return 0; }

// Returns the length of the first line of a non-empty text, including its end.
size_t line_length(std::string_view text) {
  const size_t end = text.find_first_of("\r\n");
  if (end == std::string_view::npos) {
    return text.size();
  }
  return end + (text.substr(end).starts_with("\r\n") ? 2 : 1);
}

}  // namespace

Result<std::vector<CsvRow>> read_csv(std::string_view text, const std::string& name,
                                     char separator) {
  text = without_byte_order_mark(text);
  Reader r;
  csv_set_delim(&r.parser, static_cast<unsigned char>(separator));
  csv_set_space_func(&r.parser, is_no_space);
  bool begun = false;  // a row began on an earlier line
  // Parses line by line, so that each row has the number of its first line.
  for (; !text.empty(); ++r.line) {
    const std::string_view line = text.substr(0, line_length(text));
    text.remove_prefix(line.size());
    if (!begun) {
      r.row.line = r.line;
    }
    const size_t rows = r.rows.size();
    const size_t parsed = csv_parse(&r.parser, line.data(), line.size(), take_field, take_row, &r);
    BOWLINE_REQUIRE_CODE(csv_error(&r.parser) != CSV_ENOMEM, Code::out_of_memory,
                         "{}:{}: Out of memory while reading a field.", name, r.line);
    BOWLINE_REQUIRE_CODE(parsed == line.size(), Code::bad_file,
                         "{}:{}: A quote is in the wrong place. A quoted field starts and ends "
                         "with a quote; quotes inside it are doubled.",
                         name, r.line);
    const bool blank = line.find_first_not_of("\r\n") == std::string_view::npos;
    begun = r.rows.size() == rows && (begun || !blank);
  }
  const size_t first = r.row.line;
  BOWLINE_REQUIRE_CODE(csv_fini(&r.parser, take_field, take_row, &r) == 0, Code::bad_file,
                       "{}:{}: A quote is opened in this row and never closed.", name, first);
  return std::move(r.rows);
}

}  // namespace bowline::command
