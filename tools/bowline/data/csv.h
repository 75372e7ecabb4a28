// Reads CSV (RFC 4180) with libcsv. Quoted fields can contain separators, newlines and doubled
// quotes. Lines end with LF or CRLF. A byte order mark is skipped. TSV is the same with tabs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct CsvRow {
  size_t line = 0;  // line number of its start, from 1
  std::vector<std::string> fields;
};

// Returns all rows, including the header. Empty lines are skipped. `name`: the file, for messages.
// Errors  bad_file: a quote is inside an unquoted field, does not end its field, or is never closed
//         ("name:line: ...").
Result<std::vector<CsvRow>> read_csv(std::string_view text, const std::string& name,
                                     char separator);

}  // namespace bowline::command
