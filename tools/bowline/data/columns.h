// Files whose rows have named fields: CSV, TSV and JSON lines.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv.h"

namespace bowline::command {

// True if the name ends in .csv, .tsv, .jsonl or .ndjson.
bool holds_examples(const std::string& name);
// Errors  bad_file: the name has another ending.
Status check_holds_examples(const std::string& name);
// True if the name ends in .jsonl or .ndjson.
bool is_json_lines(const std::string& name);

// Returns the header and the rows of a CSV or TSV file. All have the same number of fields.
// Errors  as read_csv(). bad_file: the file is empty, or a row has more or fewer fields than the
//         header ("name:line: ...").
Result<std::vector<CsvRow>> read_table(std::string_view bytes, const std::string& name);

// Returns the index of a column. `flag` sets its name, for messages.
// Errors  bad_file: there is no such column, or more than one.
Result<size_t> column_of(const CsvRow& header, const std::string& field, const char* flag,
                         const std::string& name);

// Returns the parts of a text between the separators, without empty ones.
std::vector<std::string> parts_of(std::string_view text, char separator);

// Returns at most 20 names, for messages.
std::string listed(std::span<const std::string> names);

}  // namespace bowline::command
