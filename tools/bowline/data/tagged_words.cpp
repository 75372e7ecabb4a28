#include "data/tagged_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/status.h"
#include "data/byte_order_mark.h"
#include "data/columns.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

constexpr std::string_view kSpaces = " \t\r";
constexpr std::string_view kColumnEndings[] = {".conll", ".bio", ".iob"};
constexpr std::string_view kWordLists[] = {"tokens", "words"};
constexpr std::string_view kTagLists[] = {"tags", "ner_tags", "labels"};

bool has_columns(const std::string& name) {
  return std::ranges::any_of(kColumnEndings, [&](auto end) { return name.ends_with(end); });
}

Status check_word(std::string_view word) {
  BOWLINE_REQUIRE_CODE(!word.empty() && word.find_first_of(" \t\r\n") == std::string_view::npos,
                       Code::bad_file, "The word \"{}\" is empty or has white space.", word);
  return {};
}

// Takes the first column and the last one of a line.
Status take_line(std::string_view line, TaggedWords& to) {
  const size_t end = line.find_first_of(kSpaces);
  const size_t tag = line.find_last_of(kSpaces);
  BOWLINE_REQUIRE_CODE(end != std::string_view::npos && end > 0, Code::bad_file,
                       "The line \"{}\" has no tag behind its word.", line);
  to.words.emplace_back(line.substr(0, end));
  to.tags.emplace_back(line.substr(tag + 1));
  return {};
}

Result<std::vector<TaggedWords>> from_columns(std::string_view bytes, const std::string& name) {
  bytes = without_byte_order_mark(bytes);
  std::vector<TaggedWords> out;
  bool is_open = false;  // the last sentence can get words
  for (size_t number = 1; !bytes.empty(); ++number) {
    std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    line = line.substr(0, line.find_last_not_of(kSpaces) + 1);
    if (line.empty() || line.starts_with("-DOCSTART-")) {
      is_open = false;
      continue;
    }
    if (!is_open) {
      out.push_back({{}, {}, number});
      is_open = true;
    }
    const Status taken = take_line(line, out.back());
    BOWLINE_REQUIRE_CODE(taken.ok(), Code::bad_file, "{}:{}: {}", name, number, taken.message());
  }
  return out;
}

// read_json_lines() adds the place to the errors of the next functions.

Result<std::vector<std::string>> texts_in(const nlohmann::ordered_json& row,
                                          const std::string& chosen,
                                          std::span<const std::string_view> known,
                                          const char* flag) {
  std::string field = chosen;
  for (const std::string_view name : known) {
    field = field.empty() && row.contains(name) ? name : field;
  }
  const auto list = row.find(field);
  BOWLINE_REQUIRE(list != row.end() && list->is_array(), "There is no list \"{}\". {} names it.",
                  field.empty() ? known[0] : field, flag);
  std::vector<std::string> out;
  for (const nlohmann::ordered_json& item : *list) {
    BOWLINE_REQUIRE(item.is_string(), "The list \"{}\" has an item that is {}, not text.", field,
                    item.type_name());
    out.push_back(item.get<std::string>());
  }
  return out;
}

Result<std::vector<TaggedWords>> from_lines(std::string_view bytes, const std::string& name,
                                            const std::string& words, const std::string& tags) {
  std::vector<TaggedWords> out;
  const auto take = [&](const nlohmann::ordered_json& row, size_t line) -> Status {
    TaggedWords to;
    to.line = line;
    BOWLINE_TRY_ASSIGN(to.words, texts_in(row, words, kWordLists, "--text-field"));
    BOWLINE_TRY_ASSIGN(to.tags, texts_in(row, tags, kTagLists, "--label-field"));
    BOWLINE_REQUIRE(to.words.size() == to.tags.size(), "There are {} words, but {} tags.",
                    to.words.size(), to.tags.size());
    BOWLINE_REQUIRE(!to.words.empty(), "There are no words.");
    for (const std::string& word : to.words) {
      BOWLINE_TRY(check_word(word));
    }
    out.push_back(std::move(to));
    return {};
  };
  BOWLINE_TRY(read_json_lines(bytes, name, take));
  return out;
}

bool marks_entity(std::string_view tag) {
  return tag == "O" || (tag.size() > 2 && tag[1] == '-' &&
                        std::string_view("BIES").find(tag[0]) != std::string_view::npos);
}

}  // namespace

bool holds_tagged_words(const std::string& name) {
  return has_columns(name) || is_json_lines(name);
}

Result<std::vector<TaggedWords>> read_tagged_words(std::string_view bytes, const std::string& name,
                                                   const std::string& words,
                                                   const std::string& tags) {
  BOWLINE_REQUIRE_CODE(holds_tagged_words(name), Code::bad_file,
                       "The format of \"{}\" is unknown. Its name must end in .jsonl, .ndjson, "
                       ".conll, .bio or .iob.",
                       name);
  BOWLINE_TRY_ASSIGN(std::vector<TaggedWords> out, is_json_lines(name)
                                                       ? from_lines(bytes, name, words, tags)
                                                       : from_columns(bytes, name));
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "\"{}\" holds no words.", name);
  return out;
}

Result<TagScheme> scheme_of(const std::vector<std::string>& tags) {
  const auto has_kind = [](const std::string& tag) { return marks_entity(tag) && tag != "O"; };
  const auto entity = std::ranges::find_if(tags, has_kind);
  const auto other =
      std::ranges::find_if_not(tags, [](const std::string& tag) { return marks_entity(tag); });
  BOWLINE_REQUIRE_CODE(entity == tags.end() || other == tags.end(), Code::bad_file,
                       "The tag \"{}\" marks an entity, but \"{}\" does not. Beside O, either all "
                       "tags begin with B-, "
                       "I-, E- or S-, or none does.",
                       entity == tags.end() ? "" : *entity, other == tags.end() ? "" : *other);
  return entity == tags.end() ? TagScheme::words : TagScheme::entities;
}

}  // namespace bowline::command
