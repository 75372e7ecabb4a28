// Tokenizes training data, with a length limit.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline_text.h"

namespace bowline::command {

// True if the model reads bytes instead of tokens.
bool reads_bytes(const Model& model);

// Returns the padding id: the metadata `pad_token_id`, else 0.
int32_t padding_of(const Model& model);
// Returns the first id of the metadata `eos_token_ids`.
std::optional<int32_t> end_of_text(const Model& model);

inline constexpr int64_t kMostTextTokens = 512;  // default limit of a text in tokens
// The maximum length of a row, and its origin.
struct LengthLimit {
  int64_t tokens = 0;
  std::string reason;  // origin: "--max-seq-length", "the model's max_tokens"
};
// Returns the minimum of --max-seq-length and the model's max_tokens and context_length. `flag`: 0
// if --max-seq-length is not given; then `otherwise` is its value.
LengthLimit length_limit(const Model& model, int64_t flag, int64_t otherwise);

// Returns the tokens of a text, with those that the tokenizer adds. Truncates a longer text to the
// limit and counts it in `cut`. encode_cut() returns only the ids.
Result<text::Encoding> encode_limited(const text::Tokenizer& tokenizer, std::string_view text,
                                      const LengthLimit& limit, uint64_t& cut);
Result<std::vector<int32_t>> encode_cut(const text::Tokenizer& tokenizer, std::string_view text,
                                        const LengthLimit& limit, uint64_t& cut);

// The tokens of words: those of the words with a space between them.
struct WordTokens {
  std::vector<int32_t> ids;
  std::vector<std::optional<size_t>> first;  // the first token of each word; empty: cut off
};
Result<WordTokens> encode_words(const text::Tokenizer& tokenizer,
                                std::span<const std::string> words, const LengthLimit& limit,
                                uint64_t& cut);

// Returns an integer of the metadata, the first of a list. Empty: the entry is missing or not an
// integer.
std::optional<int64_t> metadata_number(const Model& model, std::string_view key);

}  // namespace bowline::command
