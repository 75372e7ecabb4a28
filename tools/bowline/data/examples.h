// Reads texts with labels from CSV, TSV or JSON lines.
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
  std::vector<std::string> labels;  // one, unless ExampleFields::several is set
  size_t line = 0;                  // line number in the file, from 1
};

// Names of the fields to read.
struct ExampleFields {
  std::string text = "text";
  std::string label = "label";  // empty: the rows have no labels
  // A row can have any number of labels. CSV and TSV separate them with "|", JSON lines have an
  // array.
  bool several = false;
};

// `bytes`: the content of the file `name`.
// Errors  as read_csv() and read_json_lines(). bad_file: a row has more or fewer fields than the
//         header or lacks one of `fields` ("name:line: ..."), or there are no rows.
Result<std::vector<Example>> read_examples(std::string_view bytes, const std::string& name,
                                           const ExampleFields& fields);

// Returns the distinct labels of the examples, in byte order.
std::vector<std::string> labels_of(std::span<const Example> examples);
// Reads labels, one per line, in the order of the classes. `what` names the text in messages.
// Errors  bad_file: a line is empty or occurs twice.
Result<std::vector<std::string>> read_labels(std::string_view bytes, const std::string& what);
// Returns the classes of each example, as ascending indices into `labels`.
// Errors  bad_file: an example has a label that is not in `labels` ("name:line: ...").
Result<std::vector<std::vector<int32_t>>> classes_of(std::span<const Example> examples,
                                                     std::span<const std::string> labels,
                                                     const std::string& name);

}  // namespace bowline::command
