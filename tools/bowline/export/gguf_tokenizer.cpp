// A tokenizer as keys of GGUF. Of tokenizer.json two kinds of BPE are converted: over bytes, whose
// splitting of text has a name in llama.cpp, and over letters with pieces for bytes, whose merges
// are scores there; and Unigram, whose map of characters and spaces have keys.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "export/base64.h"
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

struct Vocabulary {
  std::vector<std::string> pieces;
  std::vector<int32_t> types;
  std::vector<float> scores;  // of Unigram
  bool rounded = false;       // a score has more digits
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

// Pieces with their scores, by id.
Status put_scored(const json& vocabulary, Vocabulary& to) {
  constexpr float kUnused = -10000;
  to.scores.assign(to.pieces.size(), kUnused);
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const json& pair = vocabulary[id];
    BOWLINE_REQUIRE_CODE(
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number(),
        Code::bad_file, "A token of the tokenizer is malformed: {}.", escaped(pair.dump()));
    BOWLINE_TRY(put_piece(pair[0].get<std::string>(), id, TokenType::normal, to));
    to.scores[id] = pair[1].get<float>();
    to.rounded = to.rounded || double{to.scores[id]} != pair[1].get<double>();
  }
  return {};
}

Result<Vocabulary> vocabulary_of(const json& tokenizer, int64_t count) {
  Vocabulary out;
  for (int64_t i = 0; i < count; ++i) {
    out.pieces.push_back(fmt::format("[PAD{}]", i));
    out.types.push_back(static_cast<int32_t>(TokenType::unused));
  }
  const json& vocabulary = value_at(value_at(tokenizer, "model"), "vocab");
  BOWLINE_REQUIRE_CODE(vocabulary.is_structured(), Code::bad_file,
                       "The asset \"tokenizer\" has no vocabulary.");
  if (vocabulary.is_array()) {
    BOWLINE_TRY(put_scored(vocabulary, out));
  } else {
    for (const auto& [piece, id] : vocabulary.items()) {
      BOWLINE_TRY(put_piece(piece, id, TokenType::normal, out));
    }
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
        Code::bad_file, "A merge of the tokenizer is malformed: {}.", escaped(merge.dump()));
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

constexpr const char* kNoKeys = "GGUF has no keys for how it changes and splits text";

// Bytes are letters.
Result<Missing> add_byte_level(const json& tokenizer, const Vocabulary& pieces,
                               std::span<const Merge> merges, Metadata& to,
                               std::vector<std::string>& notes) {
  const Splitting* const splitting = splitting_of(tokenizer);
  if (splitting == nullptr) {
    return Missing("llama.cpp has no name for how it changes and splits text");
  }
  if (splitting->nfc) {
    notes.push_back(
        "The tokenizer brings text into the form NFC; llama.cpp does not, and makes other tokens "
        "of text in another form.");
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

using Steps = std::vector<json>;

Steps normalizers_of(const json& tokenizer) {
  return steps_of(value_at(tokenizer, "normalizer"), "normalizers");
}
Steps pre_tokenizers_of(const json& tokenizer) {
  return steps_of(value_at(tokenizer, "pre_tokenizer"), "pretokenizers");
}

bool is_metaspace(const json& step) {
  return text_at(step, "type") == "Metaspace" && text_at(step, "replacement") == kSpace;
}
// As older files say it, too.
std::string prepend_scheme_of(const json& metaspace) {
  const std::string scheme = text_at(metaspace, "prepend_scheme");
  const char* const older = flag_at(metaspace, "add_prefix_space", true) ? "always" : "never";
  return scheme.empty() ? older : scheme;
}
// It cuts in front of spaces.
bool splits(const json& step) {
  return text_at(step, "type") == "Metaspace" && flag_at(step, "split", true);
}

// Where spaces become U+2581, and whether one is put in front: of each text between special tokens,
// or with conditions, as Metaspace has them.
enum class Spaces : uint8_t { unknown, plain, prefix, metaspace, metaspace_first };

Spaces spaces_of(std::vector<json> steps, const std::vector<json>& pre) {
  if (pre.size() == 1 && steps.empty() && is_metaspace(pre[0])) {
    const std::string scheme = prepend_scheme_of(pre[0]);
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
std::optional<uint32_t> mark(std::string_view unknown, Vocabulary& pieces) {
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

void note_prefix(Spaces spaces, std::vector<std::string>& notes) {
  if (spaces == Spaces::metaspace || spaces == Spaces::metaspace_first) {
    notes.push_back(
        fmt::format("The tokenizer puts no space in front of a text that begins with one{}; "
                    "readers of GGUF do.",
                    spaces == Spaces::metaspace_first ? ", nor behind a special token" : ""));
  }
}

// Letters are pieces, and what is none is the bytes that it has.
Result<Missing> add_scored(const json& tokenizer, Vocabulary& pieces, std::span<const Merge> merges,
                           Metadata& to, std::vector<std::string>& notes) {
  const Steps pre = pre_tokenizers_of(tokenizer);
  const Spaces spaces = spaces_of(normalizers_of(tokenizer), pre);
  if (spaces == Spaces::unknown || std::ranges::any_of(pre, splits)) {
    return Missing(kNoKeys);
  }
  const auto unknown = mark(text_at(value_at(tokenizer, "model"), "unk_token"), pieces);
  ScoredPieces from{pieces.pieces, {}};
  for (const int32_t type : pieces.types) {
    from.is_text.push_back(takes_part(static_cast<TokenType>(type)));
  }
  if (std::ranges::count(pieces.types, static_cast<int32_t>(TokenType::byte)) != 256) {
    return Missing("it does not have a token for each byte");
  }
  const Scores scores = scores_of(from, merges);
  if (!scores.missing.empty()) {
    return Missing(fmt::format(
        "GGUF stores scores instead of merges, and no scores are equivalent to these merges: {}",
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
  note_prefix(spaces, notes);
  return Missing();
}

// What Unigram does to text before it looks for pieces.
struct Preparation {
  std::string charsmap;
  bool one_space = false;  // between words, and in front of the first one
  Spaces spaces = Spaces::unknown;
  bool cuts_at_white_space = false;  // of any kind
};

// A run of spaces becomes one, and none is left at the end.
bool merges_spaces(const Steps& steps) {
  if (steps.size() != 2 || text_at(steps[0], "type") != "Strip" ||
      text_at(steps[1], "type") != "Replace") {
    return false;
  }
  const std::string content = text_at(steps[1], "content");
  return !flag_at(steps[0], "strip_left", true) && flag_at(steps[0], "strip_right", false) &&
         text_at(value_at(steps[1], "pattern"), "Regex") == " {2,}" &&
         (content == kSpace || content == " ");
}

// None: GGUF has no keys for it, or its map of characters is none.
std::optional<Preparation> preparation_of(const json& tokenizer) {
  Preparation out;
  Steps steps = normalizers_of(tokenizer), pre = pre_tokenizers_of(tokenizer);
  if (!steps.empty() && text_at(steps[0], "type") == "Precompiled") {
    const auto map = from_base64(text_at(steps[0], "precompiled_charsmap"));
    if (!map) {
      return std::nullopt;
    }
    out.charsmap = *map;
    steps.erase(steps.begin());
  }
  out.cuts_at_white_space =
      pre.size() == 2 && steps.empty() && text_at(pre[0], "type") == "WhitespaceSplit";
  if (out.cuts_at_white_space) {
    pre.erase(pre.begin());
  }
  out.one_space = out.cuts_at_white_space || merges_spaces(steps);
  out.spaces = spaces_of(out.one_space ? Steps() : steps, pre);
  const bool known =
      out.one_space ? out.spaces == Spaces::metaspace : out.spaces != Spaces::unknown;
  return known ? std::optional(std::move(out)) : std::nullopt;
}

// Words by themselves have the pieces that they have in a text.
bool has_words_alone(const Vocabulary& pieces) {
  bool has_space = false;
  for (size_t id = 0; id < pieces.pieces.size(); ++id) {
    const auto type = static_cast<TokenType>(pieces.types[id]);
    if (crosses_words(type, pieces.pieces[id])) {
      return false;
    }
    has_space = has_space || (type == TokenType::normal && pieces.pieces[id] == kSpace);
  }
  return has_space;
}

void note_unigram(const Preparation& how, const Vocabulary& pieces, bool byte_fallback,
                  std::vector<std::string>& notes) {
  if (!how.one_space) {
    note_prefix(how.spaces, notes);
  }
  if (how.cuts_at_white_space) {
    notes.push_back(
        "The tokenizer cuts text at any white space; readers of GGUF at spaces, and what its map "
        "of characters makes spaces of.");
  }
  if (byte_fallback) {
    notes.push_back("Text without a token becomes bytes here; llama.cpp uses the unknown token.");
  }
  if (pieces.rounded) {
    notes.push_back("The scores of tokens are rounded to f32.");
  }
}

// The pieces whose scores have the largest sum.
Result<Missing> add_unigram(const json& tokenizer, Vocabulary& pieces, Metadata& to,
                            std::vector<std::string>& notes) {
  const auto how = preparation_of(tokenizer);
  if (!how) {
    return Missing(kNoKeys);
  }
  const json& model = value_at(tokenizer, "model");
  const int64_t unknown = integer_at(model, "unk_id", -1);
  if (unknown < 0 || std::cmp_greater_equal(unknown, pieces.pieces.size())) {
    return Missing("it has no unknown token");
  }
  const Steps pre = pre_tokenizers_of(tokenizer);
  if (std::ranges::any_of(pre, splits) && !has_words_alone(pieces)) {
    return Missing("it looks for tokens within words, but readers of GGUF look in the whole text");
  }
  const bool byte_fallback = flag_at(model, "byte_fallback", false);
  pieces.types[static_cast<size_t>(unknown)] = static_cast<int32_t>(TokenType::unknown);
  if (byte_fallback) {
    mark(pieces.pieces[static_cast<size_t>(unknown)], pieces);
  }
  to.text("tokenizer.ggml.model", "t5");
  to.text("tokenizer.ggml.pre", "default");
  to.texts("tokenizer.ggml.tokens", pieces.pieces);
  to.numbers("tokenizer.ggml.scores", pieces.scores);
  to.numbers("tokenizer.ggml.token_type", pieces.types);
  to.flag("tokenizer.ggml.add_space_prefix", how->spaces != Spaces::plain);
  to.flag("tokenizer.ggml.remove_extra_whitespaces", how->one_space);
  to.number("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
  if (!how->charsmap.empty()) {
    to.numbers(
        "tokenizer.ggml.precompiled_charsmap",
        std::span(reinterpret_cast<const uint8_t*>(how->charsmap.data()), how->charsmap.size()));
  }
  note_unigram(*how, pieces, byte_fallback, notes);
  return Missing();
}

void note_rules(const json& tokenizer, std::vector<std::string>& notes) {
  const json& added = value_at(tokenizer, "added_tokens");
  const auto found = std::ranges::find_if(added, [](const json& token) {
    return flag_at(token, "single_word", false) || flag_at(token, "lstrip", false) ||
           flag_at(token, "rstrip", false);
  });
  if (found != added.end()) {
    notes.push_back(
        fmt::format("The added token {} has its own matching rules (single_word, lstrip or "
                    "rstrip), which GGUF does not have.",
                    listed_name(text_at(*found, "content"))));
  }
}

Result<Missing> add_json(const Model& model, const json& tokenizer, int64_t vocabulary,
                         Metadata& to, std::vector<std::string>& notes) {
  const json& of = value_at(tokenizer, "model");
  const std::string type = text_at(of, "type");
  if (type != "BPE" && type != "Unigram") {
    return Missing(
        fmt::format("it is {}, and only BPE and Unigram can be written", listed_name(type)));
  }
  const Surround around = surround_of(tokenizer);
  if (!around.known) {
    return Missing("GGUF has no keys for what it puts around a text");
  }
  BOWLINE_TRY_ASSIGN(Vocabulary pieces, vocabulary_of(tokenizer, vocabulary));
  BOWLINE_TRY_ASSIGN(const std::vector<Merge> merges, merges_of(tokenizer));
  BOWLINE_TRY_ASSIGN(Missing missing, type == "Unigram" ? add_unigram(tokenizer, pieces, to, notes)
                                      : flag_at(of, "byte_fallback", false)
                                          ? add_scored(tokenizer, pieces, merges, to, notes)
                                          : add_byte_level(tokenizer, pieces, merges, to, notes));
  if (missing.empty()) {
    add_special_ids(model, around, to);
    note_rules(tokenizer, notes);
  }
  return missing;
}

// tokenizer.*, from either form of the asset.
Result<Missing> add_keys(const Model& model, int64_t vocabulary, Metadata& to,
                         std::vector<std::string>& notes) {
  BOWLINE_TRY_ASSIGN(const std::string kind, media_type_of(model, "tokenizer"));
  if (kind.empty()) {
    return Missing("the model has none");
  }
  BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, model.asset("tokenizer"));
  if (kind == "application/vnd.gguf.tokenizer") {
    BOWLINE_TRY_ASSIGN(const gguf::File file, gguf::File::parse(bytes));
    for (const gguf::Entry& entry : file.entries) {
      to.copy(entry);
    }
    return Missing();
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BOWLINE_TRY_ASSIGN(const json tokenizer, import::parse_json("The asset \"tokenizer\"", text));
  return add_json(model, tokenizer, vocabulary, to, notes);
}

}  // namespace

Status add_tokenizer(const Model& model, int64_t vocabulary, Metadata& to,
                     std::vector<std::string>& notes) {
  BOWLINE_TRY_ASSIGN(const std::optional<std::string> chat, text_asset(model, "chat_template"));
  if (chat) {
    to.text("tokenizer.chat_template", *chat);
  }
  BOWLINE_TRY_ASSIGN(const Missing missing, add_keys(model, vocabulary, to, notes));
  if (!missing.empty()) {
    to.text("tokenizer.ggml.model", "none");  // as llama.cpp says that a model takes ids alone
    notes.push_back(fmt::format("The file has no tokenizer: {}.", missing));
  }
  return {};
}

}  // namespace bowline::command
