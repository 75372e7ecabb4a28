// Rows of texts with labels: CSV, TSV or JSON lines.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct Example {
  std::string text;
  std::vector<std::string> labels;  // one, unless there may be several
  size_t line = 0;                  // of its file, from 1 on
};

// Which fields of a row are read.
struct ExampleFields {
  std::string text = "text";
  std::string label = "label";  // empty: rows have none
  // Of a field of CSV and TSV, labels stand with "|" between them; in JSON lines the field is an
  // array.
  bool several = false;
};

// By the end of the name: .csv, .tsv, .jsonl or .ndjson.
bool holds_examples(const std::string& name);

// `bytes` is the content of the file `name`. Errors  bad_file: see read_csv() and
// read_json_lines(); a row has more or fewer fields than
// the header, or lacks one of `fields`, there are no rows ("name:line: ...").
Result<std::vector<Example>> read_examples(std::string_view bytes, const std::string& name,
                                           const ExampleFields& fields);

// The labels of the examples, once each, in the order of their bytes.
std::vector<std::string> labels_of(std::span<const Example> examples);
// A label per line, in the order of the classes; `what` begins the messages. Errors  bad_file: a
// line is empty or stands twice.
Result<std::vector<std::string>> read_labels(std::string_view bytes, const std::string& what);
// For each example its classes, by their numbers. Errors  bad_file: a label is none of these
// ("name:line: ...").
Result<std::vector<std::vector<int32_t>>> classes_of(std::span<const Example> examples,
                                                     std::span<const std::string> labels,
                                                     const std::string& name);

}  // namespace bowline::command
