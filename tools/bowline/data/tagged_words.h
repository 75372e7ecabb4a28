// Reads words with tags, for example of entities, from JSON lines or the columns of CoNLL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A sentence: words, and a tag for each.
struct TaggedWords {
  std::vector<std::string> words;
  std::vector<std::string> tags;
  size_t line = 0;  // number of its first line in the file, from 1
};

// True if the name ends in .jsonl, .ndjson, .conll, .bio or .iob.
bool holds_tagged_words(const std::string& name);

// Reads JSON lines with a list of words and a list of tags; or lines with a word, any other columns
// and the tag, separated by spaces or tabs, with an empty line behind each sentence. A line that
// begins with "-DOCSTART-" is no word, and ends a sentence.
// `words`, `tags`: names of the lists of JSON lines. Empty: the first of "tokens" and "words", and
// of "tags", "ner_tags" and "labels", that a row has. Errors  bad_file: a line has no tag; a row
// lacks a list, or its lists differ in length; a word is
//         empty or has white space; a tag is not text; there are no words ("name:line: ...").
Result<std::vector<TaggedWords>> read_tagged_words(std::string_view bytes, const std::string& name,
                                                   const std::string& words,
                                                   const std::string& tags);

// How the tags of a model mark entities of several words.
enum class TagScheme : uint8_t {
  words,     // not at all: each word has a label of its own
  entities,  // "O", and a prefix B, I, E or S before the kind of an entity: "B-place"
};
// Errors  bad_file: some tags are of entities, and others are not. The message names one of each.
Result<TagScheme> scheme_of(const std::vector<std::string>& tags);

}  // namespace bowline::command
