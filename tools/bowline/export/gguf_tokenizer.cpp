// A tokenizer as keys of GGUF. Two kinds of BPE of tokenizer.json are converted: over bytes, whose splitting of text has a name in
// llama.cpp, and over letters with pieces for bytes, whose merges are scores there.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "common/require.h"
#include "export/gguf_metadata.h"
#include "export/scores.h"
#include "export/splitting.h"
#include "export/tensors.h"
#include "export/token_type.h"
#include "source/json.h"

namespace bowline::command {
namespace {

using gguf::Metadata;
using nlohmann::json;

constexpr std::string_view kSpace = "\u2581";

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

// "a b", or ["a", "b"] where pieces may have spaces.
Result<std::vector<Merge>> merges_of(const json& tokenizer) {
  std::vector<Merge> out;
  const json& merges = value_at(value_at(tokenizer, "model"), "merges");
  for (const json& merge : merges) {
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = std::min(text.find(' ', 1), text.size());
      out.emplace_back(text.substr(0, space), text.substr(std::min(space + 1, text.size())));
      continue;
    }
    BOWLINE_REQUIRE_CODE(
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
        Code::bad_file, "The tokenizer has a merge that is none: {}.", escaped(merge.dump()));
    out.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  return out;
}

// With U+0120 for a space within a piece, as llama.cpp reads it.
std::string merge_text(const Merge& merge) {
  std::string out;
  for (const char c : merge.first + "\n" + merge.second) {
    out += c == ' ' ? "\u0120" : c == '\n' ? " " : std::string(1, c);
  }
  return out;
}

std::optional<uint32_t> id_of(const Model& model, const char* key) {
  const std::string text = model.metadata(key);
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end != text.data() ? std::optional(id) : std::nullopt;
}

// What a tokenizer puts around a text.
struct Surround {
  bool known = true;
  std::vector<uint32_t> before, behind;
};

void add_template(const json& step, Surround& out) {
  bool behind = false;
  const json& single = value_at(step, "single");
  for (const json& part : single) {
    const std::string name = text_at(value_at(part, "SpecialToken"), "id");
    behind = behind || name.empty();
    const json& ids = value_at(value_at(value_at(step, "special_tokens"), name), "ids");
    for (const json& id : ids) {
      const bool is_id = id.is_number_unsigned() && id <= UINT32_MAX;
      (behind ? out.behind : out.before).push_back(is_id ? id.get<uint32_t>() : 0);
      out.known = out.known && is_id;
    }
  }
}

Surround surround_of(const json& tokenizer) {
  Surround out;
  for (const json& step : steps_of(value_at(tokenizer, "post_processor"), "processors")) {
    const std::string type = text_at(step, "type");
    if (type == "TemplateProcessing") {
      add_template(step, out);
    } else if (type != "ByteLevel") {  // which moves offsets alone
      out.known = false;
    }
  }
  out.known = out.known && out.before.size() <= 1 && out.behind.size() <= 1;
  return out;
}

void add_special_ids(const Model& model, const Surround& around, Metadata& to) {
  const auto add = [&](const char* key, const char* name, const std::vector<uint32_t>& added) {
    const auto id = added.empty() ? id_of(model, name) : std::optional(added[0]);
    if (id) {
      to.number(fmt::format("tokenizer.ggml.{}_token_id", key), *id);
    }
  };
  add("bos", "bos_token_id", around.before);
  add("eos", "eos_token_ids", around.behind);
  add("padding", "pad_token_id", {});
  to.flag("tokenizer.ggml.add_bos_token", !around.before.empty());
  if (!around.behind.empty()) {
    to.flag("tokenizer.ggml.add_eos_token", true);
  }
}

// Why a tokenizer is not written; empty: it is.
using Missing = std::string;

// Bytes are letters.
Result<Missing> add_byte_level(const json& tokenizer, const Vocabulary& pieces,
                               std::span<const Merge> merges, Metadata& to) {
  const Splitting* const splitting = splitting_of(tokenizer);
  const bool plain = value_at(tokenizer, "normalizer").is_null();
  if (splitting == nullptr ||
      (!plain && splitting->name != "qwen2")) {  // which normalises by its name
    return Missing("llama.cpp has no name for how it splits text");
  }
  std::vector<std::string> texts;
  for (const Merge& merge : merges) {
    texts.push_back(merge_text(merge));
  }
  to.text("tokenizer.ggml.model", "gpt2");
  to.text("tokenizer.ggml.pre", splitting->name);
  to.texts("tokenizer.ggml.tokens", pieces.pieces);
  to.numbers("tokenizer.ggml.token_type", pieces.types);
  to.texts("tokenizer.ggml.merges", texts);
  return Missing();
}

// Where spaces become U+2581, and whether one is put in front: of each text between special tokens, or with conditions, as Metaspace has
// them.
enum class Spaces : uint8_t { unknown, plain, prefix, metaspace, metaspace_first };

Spaces spaces_of(const json& tokenizer) {
  std::vector<json> steps = steps_of(value_at(tokenizer, "normalizer"), "normalizers");
  const std::vector<json> pre = steps_of(value_at(tokenizer, "pre_tokenizer"), "pretokenizers");
  const bool is_metaspace =
      pre.size() == 1 && steps.empty() && text_at(pre[0], "type") == "Metaspace" &&
      !flag_at(pre[0], "split", true) && text_at(pre[0], "replacement") == kSpace;
  if (is_metaspace) {
    const std::string scheme = text_at(pre[0], "prepend_scheme");
    return scheme == "always"  ? Spaces::metaspace
           : scheme == "first" ? Spaces::metaspace_first
           : scheme == "never" ? Spaces::plain
                               : Spaces::unknown;
  }
  const bool prefix = !steps.empty() && text_at(steps[0], "type") == "Prepend" &&
                      text_at(steps[0], "prepend") == kSpace;
  if (prefix) {
    steps.erase(steps.begin());
  }
  // At spaces, of which the normalizer leaves none, as Gemma's has it.
  const bool splits_none = pre.size() == 1 && text_at(pre[0], "type") == "Split" &&
                           text_at(value_at(pre[0], "pattern"), "String") == " ";
  const bool known = (pre.empty() || splits_none) && steps.size() == 1 &&
                     text_at(steps[0], "type") == "Replace" &&
                     text_at(value_at(steps[0], "pattern"), "String") == " " &&
                     text_at(steps[0], "content") == kSpace;
  return !known ? Spaces::unknown : prefix ? Spaces::prefix : Spaces::plain;
}

// "<0x41>"
bool is_byte(std::string_view piece) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>') &&
         is_hex(piece[3]) && is_hex(piece[4]);
}

// Gives bytes and the unknown piece their types. Returns its id, or none.
std::optional<uint32_t> mark(const json& tokenizer, Vocabulary& pieces) {
  const std::string unknown = text_at(value_at(tokenizer, "model"), "unk_token");
  std::optional<uint32_t> out;
  for (size_t id = 0; id < pieces.pieces.size(); ++id) {
    if (is_byte(pieces.pieces[id])) {
      pieces.types[id] = static_cast<int32_t>(TokenType::byte);
    } else if (pieces.pieces[id] == unknown) {
      pieces.types[id] = static_cast<int32_t>(TokenType::unknown);
      out = static_cast<uint32_t>(id);
    }
  }
  return out;
}

// Letters are pieces, and what is none is the bytes that it has.
Result<Missing> add_scored(const json& tokenizer, Vocabulary& pieces, std::span<const Merge> merges,
                           Metadata& to, std::vector<std::string>& notes) {
  const Spaces spaces = spaces_of(tokenizer);
  if (spaces == Spaces::unknown) {
    return Missing("GGUF has no keys for how it changes and splits text");
  }
  const auto unknown = mark(tokenizer, pieces);
  ScoredPieces from{pieces.pieces, {}};
  for (const int32_t type : pieces.types) {
    from.is_text.push_back(takes_part(static_cast<TokenType>(type)));
  }
  if (std::ranges::count(pieces.types, static_cast<int32_t>(TokenType::byte)) != 256) {
    return Missing("it has not a piece for each byte");
  }
  const Scores scores = scores_of(from, merges);
  if (!scores.missing.empty()) {
    return Missing(fmt::format("GGUF has scores for merges, and these are none of scores: {}",
                               scores.missing));
  }
  to.text("tokenizer.ggml.model", "llama");
  to.text("tokenizer.ggml.pre", "default");
  to.texts("tokenizer.ggml.tokens", pieces.pieces);
  to.numbers("tokenizer.ggml.scores", scores.scores);
  to.numbers("tokenizer.ggml.token_type", pieces.types);
  to.flag("tokenizer.ggml.add_space_prefix", spaces != Spaces::plain);
  if (unknown) {
    to.number("tokenizer.ggml.unknown_token_id", *unknown);
  }
  if (spaces == Spaces::metaspace || spaces == Spaces::metaspace_first) {
    notes.push_back(
        fmt::format("The tokenizer puts no space in front of a text that begins with one{}; "
                    "readers of GGUF do.",
                    spaces == Spaces::metaspace_first ? ", nor behind a special token" : ""));
  }
  return Missing();
}

void note_rules(const json& tokenizer, std::vector<std::string>& notes) {
  const json& added = value_at(tokenizer, "added_tokens");
  const auto found = std::ranges::find_if(added, [](const json& token) {
    return flag_at(token, "single_word", false) || flag_at(token, "lstrip", false) ||
           flag_at(token, "rstrip", false);
  });
  if (found != added.end()) {
    notes.push_back(fmt::format(
        "The added token {} is found by rules of its own (single_word, lstrip or rstrip), which "
        "GGUF has not.",
        listed_name(text_at(*found, "content"))));
  }
}

Result<Missing> add_json(const Model& model, const json& tokenizer, int64_t vocabulary,
                         Metadata& to, std::vector<std::string>& notes) {
  const json& of = value_at(tokenizer, "model");
  if (text_at(of, "type") != "BPE") {
    return Missing(
        fmt::format("it is {}, and BPE alone is written", listed_name(text_at(of, "type"))));
  }
  const Surround around = surround_of(tokenizer);
  if (!around.known) {
    return Missing("GGUF has no keys for what it puts around a text");
  }
  BOWLINE_ASSIGN(Vocabulary pieces, vocabulary_of(tokenizer, vocabulary));
  BOWLINE_ASSIGN(const std::vector<Merge> merges, merges_of(tokenizer));
  BOWLINE_ASSIGN(Missing missing, flag_at(of, "byte_fallback", false)
                                      ? add_scored(tokenizer, pieces, merges, to, notes)
                                      : add_byte_level(tokenizer, pieces, merges, to));
  if (missing.empty()) {
    add_special_ids(model, around, to);
    note_rules(tokenizer, notes);
  }
  return missing;
}

// tokenizer.*, from either form of the asset.
Result<Missing> add_keys(const Model& model, int64_t vocabulary, Metadata& to,
                         std::vector<std::string>& notes) {
  BOWLINE_ASSIGN(const std::string kind, media_type_of(model, "tokenizer"));
  if (kind.empty()) {
    return Missing("the model has none");
  }
  BOWLINE_ASSIGN(const std::vector<std::byte> bytes, model.asset("tokenizer"));
  if (kind == "application/vnd.gguf.tokenizer") {
    BOWLINE_ASSIGN(const gguf::File file, gguf::File::parse(bytes));
    for (const gguf::Entry& entry : file.entries) {
      to.copy(entry);
    }
    return Missing();
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BOWLINE_ASSIGN(const json tokenizer, import::parse_json("The asset \"tokenizer\"", text));
  return add_json(model, tokenizer, vocabulary, to, notes);
}

}  // namespace

Status add_tokenizer(const Model& model, int64_t vocabulary, Metadata& to,
                     std::vector<std::string>& notes) {
  BOWLINE_ASSIGN(const std::optional<std::string> chat, text_asset(model, "chat_template"));
  if (chat) {
    to.text("tokenizer.chat_template", *chat);
  }
  BOWLINE_ASSIGN(const Missing missing, add_keys(model, vocabulary, to, notes));
  if (!missing.empty()) {
    to.text("tokenizer.ggml.model", "none");  // as llama.cpp says that a model takes ids alone
    notes.push_back(fmt::format("The file has no tokenizer: {}.", missing));
  }
  return {};
}

}  // namespace bowline::command
