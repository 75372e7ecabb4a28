#include "data/examples.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/status.h"
#include "data/byte_order_mark.h"
#include "data/columns.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

constexpr char kBetweenLabels = '|';

Result<std::vector<Example>> from_csv(std::string_view bytes, const std::string& name,
                                      const ExampleFields& fields) {
  BOWLINE_TRY_ASSIGN(const std::vector<CsvRow> rows, read_table(bytes, name));
  const CsvRow& header = rows.front();
  BOWLINE_TRY_ASSIGN(const size_t text, column_of(header, fields.text, "--text-field", name));
  size_t label = 0;
  if (!fields.label.empty()) {
    BOWLINE_TRY_ASSIGN(label, column_of(header, fields.label, "--label-field", name));
  }
  std::vector<Example> out;
  for (const CsvRow& row : std::span(rows).subspan(1)) {
    Example& example = out.emplace_back(Example{row.fields[text], {}, row.line});
    if (!fields.label.empty()) {
      example.labels = fields.several ? parts_of(row.fields[label], kBetweenLabels)
                                      : std::vector{row.fields[label]};
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

Result<std::vector<Example>> read_examples(std::string_view bytes, const std::string& name,
                                           const ExampleFields& fields) {
  BOWLINE_TRY(check_holds_examples(name));
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
