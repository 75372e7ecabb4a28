// CSV as RFC 4180 has it, read with libcsv: quoted fields with separators, newlines and doubled
// quotes in them, lines that end with LF or CRLF, a byte-order mark. TSV is the same with tabs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct CsvRow {
  size_t line = 0;  // where it begins, from 1 on
  std::vector<std::string> fields;
};

// All rows of a text, that of the header too; lines without characters are none. `name` is that of
// the file, for messages.
// Errors  bad_file: a quote stands inside a field without quotes, or after a quoted one, or is
//         never closed ("name:line: ...").
Result<std::vector<CsvRow>> read_csv(std::string_view text, const std::string& name,
                                     char separator);

}  // namespace bowline::command
