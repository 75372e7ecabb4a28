// Reads groups of texts, to train embeddings, from CSV, TSV or JSON lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct TextGroup {
  // A pair (anchor, positive), a triplet (anchor, positive, negative), or two texts with a
  // similarity score.
  std::vector<std::string> texts;
  float score = 0;
  size_t line = 0;  // line number in the file, from 1
};

struct TextGroups {
  std::vector<std::string> fields;  // with the texts: two or three
  std::string score;                // field with the score; empty: the rows have none
  std::vector<TextGroup> rows;
};

// `texts`: names of two or three fields, separated by commas. Empty: the first of these that the
// file has: "anchor" and "positive", "query" and "positive", "question" and "answer", "sentence1"
// and "sentence2", "text1" and "text2"; and "negative" behind "positive".
// `score`: name of the field with a score from -1 to 1. Empty: "score", if the file has it and no
// third text.
// `bytes`: the content of the file `name`.
// Errors  as read_table() and read_json_lines(). bad_file: the file lacks the fields; a text is
//         missing or empty; a score is not a number from -1 to 1; pairs have a field "label" that
//         nothing uses; there are no rows ("name:line: ...").
//         bad_argument: `texts` has another number of names; or it has three, and there is a score.
Result<TextGroups> read_text_groups(std::string_view bytes, const std::string& name,
                                    const std::string& texts, const std::string& score);

}  // namespace bowline::command
