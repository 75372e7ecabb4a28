#include "tasks/tokenize.h"

#include <algorithm>
#include <charconv>

#include "base/status.h"

namespace bowline::command {

bool reads_bytes(const Model& model) {
  const std::string tokenizer = model.metadata("tokenizer");
  return tokenizer == "bytes" || (tokenizer.empty() && !model.asset("tokenizer").ok());
}

std::optional<int64_t> metadata_number(const Model& model, std::string_view key) {
  const std::string text = model.metadata(key);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && (end == text.data() + text.size() || *end == ',');
  return whole ? std::optional(number) : std::nullopt;
}

int32_t padding_of(const Model& model) {
  const int64_t id = metadata_number(model, "pad_token_id").value_or(0);
  return id < 0 || id > INT32_MAX ? 0 : static_cast<int32_t>(id);
}

std::optional<int32_t> end_of_text(const Model& model) {
  const std::optional<int64_t> id = metadata_number(model, "eos_token_ids");
  return id && *id >= 0 && *id <= INT32_MAX ? std::optional(static_cast<int32_t>(*id))
                                            : std::nullopt;
}

LengthLimit length_limit(const Model& model, int64_t flag, int64_t otherwise) {
  LengthLimit limit = flag != 0 ? LengthLimit{flag, "--max-seq-length"}
                                : LengthLimit{otherwise, "the default of --max-seq-length"};
  for (const char* key : {"max_tokens", "context_length"}) {
    const std::optional<int64_t> most = metadata_number(model, key);
    if (most && *most > 0 && *most < limit.tokens) {
      limit = {*most, std::string("the model's ") + key};
    }
  }
  return limit;
}

Result<text::Encoding> encode_limited(const text::Tokenizer& tokenizer, std::string_view text,
                                      const LengthLimit& limit, uint64_t& cut) {
  BOWLINE_TRY_ASSIGN(text::Encoding all, tokenizer.encode(text));
  const auto most = static_cast<size_t>(limit.tokens);
  if (all.ids.size() > most) {
    ++cut;
    BOWLINE_TRY_ASSIGN(all, tokenizer.encode(text, {.max_tokens = most}));
  }
  return all;
}

Result<std::vector<int32_t>> encode_cut(const text::Tokenizer& tokenizer, std::string_view text,
                                        const LengthLimit& limit, uint64_t& cut) {
  BOWLINE_TRY_ASSIGN(text::Encoding all, encode_limited(tokenizer, text, limit, cut));
  return std::move(all.ids);
}

Result<WordTokens> encode_words(const text::Tokenizer& tokenizer,
                                std::span<const std::string> words, const LengthLimit& limit,
                                uint64_t& cut) {
  std::string text;
  std::vector<size_t> begins;
  for (const std::string& word : words) {
    text += text.empty() ? "" : " ";
    begins.push_back(text.size());
    text += word;
  }
  BOWLINE_TRY_ASSIGN(text::Encoding all, encode_limited(tokenizer, text, limit, cut));
  WordTokens out;
  out.first.resize(words.size());
  for (size_t i = 0; i < all.ids.size(); ++i) {
    size_t begin = all.offsets[i].begin;
    if (all.special[i] != 0 || begin == all.offsets[i].end) {
      continue;
    }
    // A token can begin with the space before its word, or be this space.
    begin += text[begin] == ' ' ? 1 : 0;
    const auto word = std::ranges::upper_bound(begins, begin) - begins.begin() - 1;
    std::optional<size_t>& first = out.first[static_cast<size_t>(word)];
    first = first.value_or(i);
  }
  out.ids = std::move(all.ids);
  return out;
}

}  // namespace bowline::command
