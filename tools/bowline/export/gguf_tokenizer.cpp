// A tokenizer as keys of GGUF. Byte-level BPE of tokenizer.json is converted; llama.cpp knows how it splits text by a name alone.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "common/require.h"
#include "export/gguf_metadata.h"
#include "export/tensors.h"
#include "source/json.h"

namespace bowline::command {
namespace {

using gguf::Metadata;
using nlohmann::json;

// As llama.cpp numbers what a token is.
enum class TokenType : int32_t { normal = 1, control = 3, user_defined = 4, unused = 5 };

// Steps of a Sequence, or the one step.
std::vector<json> steps_of(const json& part, const char* list) {
  if (!part.is_object()) {
    return {};
  }
  const json& steps = value_at(part, list);
  return steps.is_array() ? steps.get<std::vector<json>>() : std::vector<json>{part};
}

struct Splitting {
  std::string_view pattern;
  std::string_view name;
};
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Splitting kSplittings[] = {{kLlama3, "llama-bpe"}, {kQwen2, "qwen2"}};

// tokenizer.ggml.pre; empty: llama.cpp has no name for it.
std::string_view splitting_of(const json& tokenizer) {
  std::vector<json> steps = steps_of(value_at(tokenizer, "pre_tokenizer"), "pretokenizers");
  if (steps.empty() || text_at(steps.back(), "type") != "ByteLevel" ||
      flag_at(steps.back(), "add_prefix_space", true)) {
    return "";
  }
  const bool by_pattern = flag_at(steps.back(), "use_regex", true);
  steps.pop_back();
  if (steps.empty()) {
    return by_pattern ? "gpt-2" : "";
  }
  const json& first = steps[0];
  if (steps.size() == 1 && by_pattern && text_at(first, "type") == "Digits" &&
      flag_at(first, "individual_digits", false)) {
    return "smollm";
  }
  if (steps.size() != 1 || by_pattern || text_at(first, "type") != "Split") {
    return "";
  }
  const std::string pattern = text_at(value_at(first, "pattern"), "Regex");
  const auto* const found = std::ranges::find(kSplittings, pattern, &Splitting::pattern);
  return found == std::end(kSplittings) ? "" : found->name;
}

struct Vocabulary {
  std::vector<std::string> pieces;
  std::vector<int32_t> types;
};

Status put_piece(const std::string& piece, const json& id, TokenType type, Vocabulary& to) {
  const bool fits = id.is_number_integer() && id >= 0 && id < to.pieces.size();
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file,
                       "The tokenizer has \"{}\" at {}, outside the {} rows of the table.",
                       escaped(piece), escaped(id.dump()), to.pieces.size());
  to.pieces[id.get<size_t>()] = piece;
  to.types[id.get<size_t>()] = static_cast<int32_t>(type);
  return {};
}

Result<Vocabulary> vocabulary_of(const json& tokenizer, int64_t count) {
  Vocabulary out;
  for (int64_t i = 0; i < count; ++i) {
    out.pieces.push_back(fmt::format("[PAD{}]", i));
    out.types.push_back(static_cast<int32_t>(TokenType::unused));
  }
  const json& vocabulary = value_at(value_at(tokenizer, "model"), "vocab");
  BOWLINE_REQUIRE_CODE(vocabulary.is_object(), Code::bad_file,
                       "The asset \"tokenizer\" has no vocabulary.");
  for (const auto& [piece, id] : vocabulary.items()) {
    BOWLINE_TRY(put_piece(piece, id, TokenType::normal, out));
  }
  const json& added = value_at(tokenizer, "added_tokens");
  for (const json& token : added) {
    BOWLINE_TRY(put_piece(
        text_at(token, "content"), value_at(token, "id"),
        flag_at(token, "special", false) ? TokenType::control : TokenType::user_defined, out));
  }
  return out;
}

// "a b", or ["a", "b"] where pieces may have spaces, which llama.cpp reads as U+0120.
Result<std::vector<std::string>> merges_of(const json& tokenizer) {
  std::vector<std::string> out;
  const json& merges = value_at(value_at(tokenizer, "model"), "merges");
  for (const json& merge : merges) {
    if (merge.is_string()) {
      out.push_back(merge.get<std::string>());
      continue;
    }
    BOWLINE_REQUIRE_CODE(
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
        Code::bad_file, "The tokenizer has a merge that is none: {}.", escaped(merge.dump()));
    std::string both = merge[0].get<std::string>() + "\n" + merge[1].get<std::string>();
    for (size_t at = both.find(' '); at != std::string::npos; at = both.find(' ', at)) {
      both.replace(at, 1, "\u0120");
    }
    both[both.find('\n')] = ' ';
    out.push_back(std::move(both));
  }
  return out;
}

std::optional<uint32_t> id_of(const Model& model, const char* key) {
  const std::string text = model.metadata(key);
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end != text.data() ? std::optional(id) : std::nullopt;
}

void add_special_ids(const Model& model, Metadata& to) {
  for (const auto& [key, name] : {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
                                  std::pair("tokenizer.ggml.eos_token_id", "eos_token_ids"),
                                  std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")}) {
    if (const auto id = id_of(model, name)) {
      to.number(key, *id);
    }
  }
}

// Whether the tokenizer puts a special token in front of a text.
bool begins_with_special(const json& tokenizer) {
  for (const json& step : steps_of(value_at(tokenizer, "post_processor"), "processors")) {
    const json& single = value_at(step, "single");
    if (single.is_array() && !single.empty() && single[0].is_object() &&
        single[0].contains("SpecialToken")) {
      return true;
    }
  }
  return false;
}

Result<std::string> add_json(const Model& model, const json& tokenizer, int64_t vocabulary,
                             Metadata& to) {
  if (text_at(value_at(tokenizer, "model"), "type") != "BPE" ||
      flag_at(value_at(tokenizer, "model"), "byte_fallback", false)) {
    return std::string("it is not byte-level BPE");
  }
  const std::string_view splitting = splitting_of(tokenizer);
  if (splitting.empty() || !value_at(tokenizer, "normalizer").is_null()) {
    if (splitting != "qwen2") {  // which normalises by its name
      return std::string("llama.cpp has no name for how it splits text");
    }
  }
  BOWLINE_ASSIGN(const Vocabulary pieces, vocabulary_of(tokenizer, vocabulary));
  BOWLINE_ASSIGN(const std::vector<std::string> merges, merges_of(tokenizer));
  to.text("tokenizer.ggml.model", "gpt2");
  to.text("tokenizer.ggml.pre", splitting);
  to.texts("tokenizer.ggml.tokens", pieces.pieces);
  to.numbers("tokenizer.ggml.token_type", pieces.types);
  to.texts("tokenizer.ggml.merges", merges);
  add_special_ids(model, to);
  to.flag("tokenizer.ggml.add_bos_token", begins_with_special(tokenizer));
  return std::string();
}

}  // namespace

Result<std::string> add_tokenizer(const Model& model, int64_t vocabulary, Metadata& to) {
  BOWLINE_ASSIGN(const std::optional<std::string> chat, text_asset(model, "chat_template"));
  if (chat) {
    to.text("tokenizer.chat_template", *chat);
  }
  BOWLINE_ASSIGN(const std::string kind, media_type_of(model, "tokenizer"));
  if (kind.empty()) {
    return std::string("the model has none");
  }
  BOWLINE_ASSIGN(const std::vector<std::byte> bytes, model.asset("tokenizer"));
  if (kind == "application/vnd.gguf.tokenizer") {
    BOWLINE_ASSIGN(const gguf::File file, gguf::File::parse(bytes));
    for (const gguf::Entry& entry : file.entries) {
      to.copy(entry);
    }
    return std::string();
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BOWLINE_ASSIGN(const json tokenizer, import::parse_json("The asset \"tokenizer\"", text));
  return add_json(model, tokenizer, vocabulary, to);
}

}  // namespace bowline::command
