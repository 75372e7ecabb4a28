// Tags of the words of a plain text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline_text.h"
#include "data/tagged_words.h"

namespace bowline::command {

// Splits a text into words at the borders of tokens. A token continues the word before if no space
// separates them, and the characters on both sides of the border are letters or digits of ASCII, or
// any other characters but punctuation of Unicode and the characters of Chinese and Japanese.
struct TextWord {
  size_t token = 0;     // its first token
  text::Offset offset;  // of the word in the text, in bytes
};
std::vector<TextWord> words_of(std::string_view text, const text::Encoding& encoding);

// Returns {"text", "entities"} or, with TagScheme::words, {"text", "words"}. An entity has "label",
// "start" and "end" (in code points of the text), "text", and "score": the mean probability of the
// tags of its words. A word has "label", "start", "end", "text" and "score".
// `probabilities`: of all tags for each word.
nlohmann::json tagged_json(std::string_view text, std::span<const TextWord> words,
                           std::span<const std::vector<double>> probabilities,
                           std::span<const std::string> tags, TagScheme scheme);

}  // namespace bowline::command
