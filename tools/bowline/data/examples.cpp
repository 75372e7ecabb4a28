#include "data/examples.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/status.h"
#include "data/byte_order_mark.h"
#include "data/csv.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

constexpr char kBetweenLabels = '|';

bool is_json_lines(const std::string& name) {
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

std::string listed(std::span<const std::string> names) {
  constexpr size_t kMost = 20;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    out += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  }
  return out + (names.size() > kMost ? ", ..." : "");
}

std::vector<std::string> split(const std::string& field) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= field.size();) {
    const size_t end = std::min(field.find(kBetweenLabels, at), field.size());
    if (end > at) {
      out.push_back(field.substr(at, end - at));
    }
    at = end + 1;
  }
  return out;
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

Result<std::vector<Example>> from_csv(std::string_view bytes, const std::string& name,
                                      const ExampleFields& fields) {
  BOWLINE_TRY_ASSIGN(const std::vector<CsvRow> rows,
                     read_csv(bytes, name, name.ends_with(".tsv") ? '\t' : ','));
  BOWLINE_REQUIRE_CODE(!rows.empty(), Code::bad_file, "\"{}\" holds no header and no rows.", name);
  const CsvRow& header = rows.front();
  BOWLINE_TRY_ASSIGN(const size_t text, column_of(header, fields.text, "--text-field", name));
  size_t label = 0;
  if (!fields.label.empty()) {
    BOWLINE_TRY_ASSIGN(label, column_of(header, fields.label, "--label-field", name));
  }
  std::vector<Example> out;
  for (const CsvRow& row : std::span(rows).subspan(1)) {
    BOWLINE_REQUIRE_CODE(row.fields.size() == header.fields.size(), Code::bad_file,
                         "{}:{}: The row has {} fields, the header {}.", name, row.line,
                         row.fields.size(), header.fields.size());
    Example& example = out.emplace_back(Example{row.fields[text], {}, row.line});
    if (!fields.label.empty()) {
      example.labels = fields.several ? split(row.fields[label]) : std::vector{row.fields[label]};
    }
  }
  return out;
}

// read_json_lines() adds the place to the errors of the next three functions.

Result<std::string> label_text(const nlohmann::ordered_json& value, const std::string& field) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  BOWLINE_REQUIRE(value.is_number_integer() || value.is_boolean(),
                  "Field \"{}\" holds a label that is {}. A label must be text or a whole number.",
                  field, value.type_name());
  return value.dump();
}

Result<std::vector<std::string>> labels_in(const nlohmann::ordered_json& row,
                                           const ExampleFields& fields) {
  const auto found = row.find(fields.label);
  BOWLINE_REQUIRE(found != row.end(), "There is no field \"{}\" (--label-field).", fields.label);
  BOWLINE_REQUIRE(!fields.several || found->is_array(),
                  "Field \"{}\" is {}. This model has several labels per text: write an array of "
                  "labels.",
                  fields.label, found->type_name());
  std::vector<std::string> out;
  for (const nlohmann::ordered_json& value :
       fields.several ? *found : nlohmann::ordered_json::array({*found})) {
    BOWLINE_TRY_ASSIGN(std::string label, label_text(value, fields.label));
    out.push_back(std::move(label));
  }
  return out;
}

Result<Example> example_in(const nlohmann::ordered_json& row, size_t line,
                           const ExampleFields& fields) {
  const auto text = row.find(fields.text);
  BOWLINE_REQUIRE(text != row.end() && text->is_string(),
                  "There is no field \"{}\" (--text-field) with text.", fields.text);
  Example example{text->get<std::string>(), {}, line};
  if (!fields.label.empty()) {
    BOWLINE_TRY_ASSIGN(example.labels, labels_in(row, fields));
  }
  return example;
}

}  // namespace

bool holds_examples(const std::string& name) {
  return name.ends_with(".csv") || name.ends_with(".tsv") || is_json_lines(name);
}

Result<std::vector<Example>> read_examples(std::string_view bytes, const std::string& name,
                                           const ExampleFields& fields) {
  BOWLINE_REQUIRE_CODE(
      holds_examples(name), Code::bad_file,
      "The format of \"{}\" is unknown. Its name must end in .csv, .tsv, .jsonl or .ndjson.", name);
  std::vector<Example> out;
  if (is_json_lines(name)) {
    BOWLINE_TRY(
        read_json_lines(bytes, name, [&](const nlohmann::ordered_json& row, size_t line) -> Status {
          BOWLINE_TRY_ASSIGN(Example example, example_in(row, line, fields));
          out.push_back(std::move(example));
          return {};
        }));
  } else {
    BOWLINE_TRY_ASSIGN(out, from_csv(bytes, name, fields));
  }
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "\"{}\" holds no rows.", name);
  return out;
}

std::vector<std::string> labels_of(std::span<const Example> examples) {
  std::set<std::string> seen;
  for (const Example& e : examples) {
    seen.insert(e.labels.begin(), e.labels.end());
  }
  return {seen.begin(), seen.end()};
}

Result<std::vector<std::string>> read_labels(std::string_view bytes, const std::string& what) {
  std::vector<std::string> out;
  bytes = without_byte_order_mark(bytes);
  // Ignores empty lines at the end.
  bytes = bytes.substr(0, bytes.find_last_not_of("\r\n") + 1);
  for (size_t line = 1; !bytes.empty(); ++line) {
    std::string_view label = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), label.size() + 1));
    if (label.ends_with('\r')) {
      label.remove_suffix(1);
    }
    BOWLINE_REQUIRE_CODE(!label.empty(), Code::bad_file,
                         "{}:{}: The line is empty. Each line must hold a label.", what, line);
    out.emplace_back(label);
  }
  std::map<std::string_view, size_t> first;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto [at, fresh] = first.emplace(out[i], i + 1);
    BOWLINE_REQUIRE_CODE(fresh, Code::bad_file, "{}:{}: Label \"{}\" is already in line {}.", what,
                         i + 1, out[i], at->second);
  }
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "{} holds no labels.", what);
  return out;
}

Result<std::vector<std::vector<int32_t>>> classes_of(std::span<const Example> examples,
                                                     std::span<const std::string> labels,
                                                     const std::string& name) {
  std::map<std::string_view, int32_t> numbers;
  for (const std::string& label : labels) {
    numbers.emplace(label, static_cast<int32_t>(numbers.size()));
  }
  std::vector<std::vector<int32_t>> out;
  for (const Example& e : examples) {
    std::vector<int32_t>& classes = out.emplace_back();
    for (const std::string& label : e.labels) {
      const auto at = numbers.find(label);
      BOWLINE_REQUIRE_CODE(at != numbers.end(), Code::bad_file,
                           "{}:{}: The model has no label \"{}\"; it has {}.", name, e.line, label,
                           listed(labels));
      classes.push_back(at->second);
    }
    std::ranges::sort(classes);
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  }
  return out;
}

}  // namespace bowline::command
