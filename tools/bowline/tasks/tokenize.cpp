#include "tasks/tokenize.h"

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

Result<std::vector<int32_t>> encode_cut(const text::Tokenizer& tokenizer, std::string_view text,
                                        const LengthLimit& limit, uint64_t& cut) {
  BOWLINE_TRY_ASSIGN(text::Encoding all, tokenizer.encode(text));
  const auto most = static_cast<size_t>(limit.tokens);
  if (all.ids.size() > most) {
    ++cut;
    BOWLINE_TRY_ASSIGN(all, tokenizer.encode(text, {.max_tokens = most}));
  }
  return std::move(all.ids);
}

}  // namespace bowline::command
