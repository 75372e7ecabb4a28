#include "data/text_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/status.h"
#include "data/columns.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

constexpr const char* kTextFlag = "--text-field";
constexpr const char* kScoreFlag = "--label-field";
constexpr std::string_view kNegative = "negative", kScore = "score", kLabel = "label";
constexpr std::string_view kKnown[][2] = {{"anchor", "positive"},
                                          {"query", "positive"},
                                          {"question", "answer"},
                                          {"sentence1", "sentence2"},
                                          {"text1", "text2"}};

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Result<std::vector<std::string>> known_fields(const std::vector<std::string>& all,
                                              const std::string& name) {
  for (const auto& [first, second] : kKnown) {
    if (has(all, first) && has(all, second)) {
      std::vector<std::string> out = {std::string(first), std::string(second)};
      if (second == "positive" && has(all, kNegative)) {
        out.emplace_back(kNegative);
      }
      return out;
    }
  }
  return Status(Code::bad_file,
                fmt::format("\"{}\" has the fields {}. Name those with the texts, such as: {} "
                            "anchor,positive.",
                            name, listed(all), kTextFlag));
}

// Chooses the fields with the texts and the score among all fields of a file.
Status choose_fields(const std::vector<std::string>& all, const std::string& name,
                     const std::string& texts, const std::string& score, TextGroups& out) {
  if (texts.empty()) {
    BOWLINE_TRY_ASSIGN(out.fields, known_fields(all, name));
  } else {
    out.fields = parts_of(texts, ',');
  }
  out.score = score;
  if (score.empty() && out.fields.size() == 2) {
    out.score = has(all, kScore) ? kScore : std::string_view();
    BOWLINE_REQUIRE_CODE(
        !out.score.empty() || !has(all, kLabel), Code::bad_file,
        "\"{}\" has a field \"{}\", which would not be used. If it is the similarity of the two "
        "texts, add {} {}. Otherwise, remove it: then all pairs belong together.",
        name, kLabel, kScoreFlag, kLabel);
  }
  BOWLINE_REQUIRE(score.empty() || out.fields.size() == 2,
                  "{} {} is for two texts per row, but there are three.", kScoreFlag, score);
  return {};
}

Result<float> checked_score(double score, const std::string& field) {
  BOWLINE_REQUIRE_CODE(score >= -1 && score <= 1, Code::bad_file,
                       "The score {} in \"{}\" is not between -1 and 1, as a cosine is. Divide "
                       "all scores by the highest one.",
                       score, field);
  return static_cast<float>(score);
}

Result<float> score_in(const std::string& text, const std::string& field) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  BOWLINE_REQUIRE_CODE(error == std::errc() && at == end && std::isfinite(number), Code::bad_file,
                       "\"{}\" in \"{}\" is not a number.", text, field);
  return checked_score(number, field);
}

Status check_text(const std::string& text, const std::string& field) {
  BOWLINE_REQUIRE_CODE(text.find_first_not_of(" \t\r\n") != std::string::npos, Code::bad_file,
                       "The text in \"{}\" is empty.", field);
  return {};
}

Result<TextGroup> group_in(const CsvRow& row, const TextGroups& groups,
                           const std::vector<size_t>& columns, size_t score) {
  TextGroup out;
  out.line = row.line;
  for (size_t i = 0; i < columns.size(); ++i) {
    out.texts.push_back(row.fields[columns[i]]);
    BOWLINE_TRY(check_text(out.texts.back(), groups.fields[i]));
  }
  if (!groups.score.empty()) {
    BOWLINE_TRY_ASSIGN(out.score, score_in(row.fields[score], groups.score));
  }
  return out;
}

Status read_columns(std::string_view bytes, const std::string& name, const std::string& texts,
                    const std::string& score, TextGroups& out) {
  BOWLINE_TRY_ASSIGN(const std::vector<CsvRow> rows, read_table(bytes, name));
  const CsvRow& header = rows.front();
  BOWLINE_TRY(choose_fields(header.fields, name, texts, score, out));
  std::vector<size_t> columns;
  for (const std::string& field : out.fields) {
    BOWLINE_TRY_ASSIGN(columns.emplace_back(), column_of(header, field, kTextFlag, name));
  }
  size_t column = 0;
  if (!out.score.empty()) {
    BOWLINE_TRY_ASSIGN(column, column_of(header, out.score, kScoreFlag, name));
  }
  for (const CsvRow& row : std::span(rows).subspan(1)) {
    Result<TextGroup> group = group_in(row, out, columns, column);
    BOWLINE_REQUIRE_CODE(group.ok(), Code::bad_file, "{}:{}: {}", name, row.line,
                         group.status().message());
    out.rows.push_back(std::move(group).value());
  }
  return {};
}

// read_json_lines() adds the place to the errors.
Result<TextGroup> group_in(const nlohmann::ordered_json& row, size_t line,
                           const TextGroups& groups) {
  TextGroup out;
  out.line = line;
  for (const std::string& field : groups.fields) {
    const auto text = row.find(field);
    BOWLINE_REQUIRE(text != row.end() && text->is_string(),
                    "There is no field \"{}\" ({}) with text.", field, kTextFlag);
    out.texts.push_back(text->get<std::string>());
    BOWLINE_TRY(check_text(out.texts.back(), field));
  }
  if (!groups.score.empty()) {
    const auto score = row.find(groups.score);
    BOWLINE_REQUIRE(score != row.end() && score->is_number(),
                    "There is no field \"{}\" ({}) with a number.", groups.score, kScoreFlag);
    BOWLINE_TRY_ASSIGN(out.score, checked_score(score->get<double>(), groups.score));
  }
  return out;
}

Status read_lines(std::string_view bytes, const std::string& name, const std::string& texts,
                  const std::string& score, TextGroups& out) {
  return read_json_lines(bytes, name,
                         [&](const nlohmann::ordered_json& row, size_t line) -> Status {
                           if (out.fields.empty()) {
                             std::vector<std::string> all;
                             for (const auto& [key, value] : row.items()) {
                               all.push_back(key);
                             }
                             BOWLINE_TRY(choose_fields(all, name, texts, score, out));
                           }
                           BOWLINE_TRY_ASSIGN(TextGroup group, group_in(row, line, out));
                           out.rows.push_back(std::move(group));
                           return {};
                         });
}

}  // namespace

Result<TextGroups> read_text_groups(std::string_view bytes, const std::string& name,
                                    const std::string& texts, const std::string& score) {
  BOWLINE_TRY(check_holds_examples(name));
  const size_t fields = parts_of(texts, ',').size();
  BOWLINE_REQUIRE(texts.empty() || fields == 2 || fields == 3,
                  "{} {} must name two or three fields, separated by commas: so many texts per row "
                  "train embeddings.",
                  kTextFlag, texts);
  TextGroups out;
  BOWLINE_TRY((is_json_lines(name) ? read_lines : read_columns)(bytes, name, texts, score, out));
  BOWLINE_REQUIRE_CODE(!out.rows.empty(), Code::bad_file, "\"{}\" holds no rows.", name);
  return out;
}

}  // namespace bowline::command
