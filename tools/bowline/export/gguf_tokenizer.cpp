// Writes a tokenizer as GGUF keys. From tokenizer.json it converts byte-level BPE if llama.cpp has
// a name for the text splitting, BPE over characters with a token for each byte (its merges become
// scores), and Unigram.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "export/gguf_metadata.h"
#include "export/json_tokenizer.h"
#include "export/scores.h"
#include "export/tensors.h"
#include "tasks/tokenize.h"

namespace bowline::command {
namespace {

using gguf::Metadata;
using text::Description;
using text::TokenType;
namespace steps = text::steps;

const std::string kSpace(text::kSpaceMark);

struct Vocabulary : Rows {
  std::vector<float> scores;  // of Unigram
  bool rounded = false;       // the scores in the model have more digits
};

Status put_piece(const std::string& piece, int64_t id, TokenType type, Vocabulary& to) {
  BOWLINE_REQUIRE_CODE(id >= 0 && std::cmp_less(id, to.pieces.size()), Code::bad_file,
                       "The tokenizer has \"{}\" at {}, outside the {} rows of the table.",
                       escaped(piece), id, to.pieces.size());
  to.pieces[static_cast<size_t>(id)] = piece;
  to.types[static_cast<size_t>(id)] = type;
  return {};
}

Result<Vocabulary> vocabulary_of(const Description& d, int64_t count) {
  constexpr float kUnused = -10000;
  Vocabulary out;
  for (int64_t i = 0; i < count; ++i) {
    out.pieces.push_back(fmt::format("[PAD{}]", i));
  }
  out.types.resize(out.pieces.size(), TokenType::unused);
  out.scores.resize(d.scores.empty() ? 0 : out.pieces.size(), kUnused);
  for (const auto& [piece, id] : d.vocabulary) {
    BOWLINE_TRY(put_piece(piece, id, TokenType::normal, out));
  }
  for (size_t id = 0; id < d.scores.size(); ++id) {
    out.scores[id] = static_cast<float>(d.scores[id]);
    out.rounded = out.rounded || double{out.scores[id]} != d.scores[id];
  }
  for (const text::AddedToken& token : d.added) {
    BOWLINE_TRY(put_piece(token.content, token.id,
                          token.special ? TokenType::control : TokenType::user_defined, out));
  }
  return out;
}

void add_vocabulary(const char* model, std::string_view pre, const Vocabulary& pieces,
                    std::span<const float> scores, Metadata& to) {
  to.text("tokenizer.ggml.model", model);
  to.text("tokenizer.ggml.pre", pre);
  to.texts("tokenizer.ggml.tokens", pieces.pieces);
  if (!scores.empty()) {
    to.numbers("tokenizer.ggml.scores", scores);
  }
  std::vector<int32_t> types;
  for (const TokenType type : pieces.types) {
    types.push_back(static_cast<int32_t>(type));
  }
  to.numbers("tokenizer.ggml.token_type", types);
}

// Returns a merge as llama.cpp reads it: U+0120 replaces a space within a token.
std::string merge_text(std::string_view left, std::string_view right) {
  std::string out;
  for (const char c : std::string(left) + "\n" + std::string(right)) {
    out += c == ' ' ? "\u0120" : c == '\n' ? " " : std::string(1, c);
  }
  return out;
}

// Empty: GGUF has no keys for the tokens that the tokenizer adds around a text.
std::optional<steps::Surround> surround_of(const Description& d) {
  steps::Surround out;
  for (const steps::PostProcessor& step : d.post_processors) {
    if (const auto* const around = std::get_if<steps::Surround>(&step)) {
      if (!around->is_template) {
        return std::nullopt;
      }
      out = *around;  // a template that adds tokens is the last one
    }
  }
  return out.before.size() <= 1 && out.behind.size() <= 1 ? std::optional(out) : std::nullopt;
}

void add_special_ids(const Model& model, const steps::Surround& around, Metadata& to) {
  const auto add = [&](const char* key, const char* name, const std::vector<int32_t>& added) {
    const int64_t id = added.empty() ? metadata_number(model, name).value_or(-1) : added[0];
    if (id >= 0 && id <= UINT32_MAX) {
      to.number(fmt::format("tokenizer.ggml.{}_token_id", key), static_cast<uint32_t>(id));
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

// The reason why a tokenizer is not written. Empty: it is written.
using Missing = std::string;

constexpr const char* kNoKeys = "GGUF has no keys for how it changes and splits text";

bool are(std::span<const steps::Normalizer> given, const std::vector<steps::Normalizer>& others) {
  return normalizer_json({given.begin(), given.end()}) == normalizer_json(others);
}

// BPE over bytes.
Missing add_byte_level(Description& d, const Vocabulary& pieces, Metadata& to,
                       std::vector<std::string>& notes) {
  for (steps::PreTokenizer& step : d.pre_tokenizers) {
    if (auto* const bytes = std::get_if<steps::ByteLevel>(&step)) {
      bytes->trim_offsets = true;  // has no effect here
    }
  }
  const std::vector<text::NamedSplit> known = text::named_splits();
  const auto named = std::ranges::find_if(known, [&](const text::NamedSplit& n) {
    return are(d.normalizers, n.normalizers) &&
           pre_tokenizer_json(d.pre_tokenizers) == pre_tokenizer_json(n.pre_tokenizers);
  });
  if (named == known.end()) {
    return "llama.cpp has no name for how it changes and splits text";
  }
  if (!d.normalizers.empty()) {
    notes.push_back(
        "The tokenizer brings text into the form NFC; llama.cpp does not, and makes other tokens "
        "of text in another form.");
  }
  add_vocabulary("gpt2", named->name, pieces, {}, to);
  std::vector<std::string> merges;
  for (const auto& [left, right] : d.merges) {
    merges.push_back(merge_text(left, right));
  }
  to.texts("tokenizer.ggml.merges", merges);
  return "";
}

// True if text is split before spaces.
bool splits(const std::vector<steps::PreTokenizer>& steps) {
  return std::ranges::any_of(steps, [](const steps::PreTokenizer& step) {
    const auto* const metaspace = std::get_if<steps::Metaspace>(&step);
    return metaspace != nullptr && metaspace->split;
  });
}

// How spaces become U+2581. plain: no space is prepended; prefix: a space is prepended to each text
// between special tokens; metaspace, metaspace_first: the rules of Metaspace.
enum class Spaces : uint8_t { unknown, plain, prefix, metaspace, metaspace_first };

Spaces spaces_of(std::span<const steps::Normalizer> normalizers,
                 std::span<const steps::PreTokenizer> pre) {
  const auto* const metaspace = pre.size() == 1 ? std::get_if<steps::Metaspace>(&pre[0]) : nullptr;
  if (metaspace != nullptr && normalizers.empty() && metaspace->replacement.text == kSpace) {
    return metaspace->prepend_scheme == text::Prepend::always  ? Spaces::metaspace
           : metaspace->prepend_scheme == text::Prepend::first ? Spaces::metaspace_first
                                                               : Spaces::plain;
  }
  const bool prefix = !normalizers.empty() && are(normalizers.first(1), {steps::Prepend{kSpace}});
  normalizers = normalizers.subspan(prefix ? 1 : 0);
  // The split at spaces of Gemma has no effect, because the normalizer leaves no spaces.
  const auto* const split = pre.size() == 1 ? std::get_if<steps::Split>(&pre[0]) : nullptr;
  const bool splits_none =
      split != nullptr && split->pattern.text == " " && !split->pattern.is_expression;
  const bool known =
      (pre.empty() || splits_none) && are(normalizers, {steps::Replace{{" "}, kSpace}});
  return !known ? Spaces::unknown : prefix ? Spaces::prefix : Spaces::plain;
}

// True for a byte token such as "<0x41>".
bool is_byte(std::string_view piece) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>') &&
         is_hex(piece[3]) && is_hex(piece[4]);
}

// Sets the types of the byte tokens and of the unknown token. Returns the id of the unknown token,
// if there is one.
std::optional<uint32_t> mark(std::string_view unknown, Vocabulary& pieces) {
  std::optional<uint32_t> out;
  for (size_t id = 0; id < pieces.pieces.size(); ++id) {
    if (is_byte(pieces.pieces[id])) {
      pieces.types[id] = TokenType::byte;
    } else if (pieces.pieces[id] == unknown) {
      pieces.types[id] = TokenType::unknown;
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

// BPE over characters. A character without a token becomes its bytes.
Missing add_scored(const Description& d, Vocabulary& pieces, Metadata& to,
                   std::vector<std::string>& notes) {
  const Spaces spaces = spaces_of(d.normalizers, d.pre_tokenizers);
  if (spaces == Spaces::unknown || splits(d.pre_tokenizers)) {
    return kNoKeys;
  }
  const auto unknown = mark(std::get<steps::Bpe>(d.model).unk_token.value_or(""), pieces);
  if (std::ranges::count(pieces.types, TokenType::byte) != 256) {
    return "it does not have a token for each byte";
  }
  const std::vector<Merge> merges(d.merges.begin(), d.merges.end());
  const Scores scores = scores_of(pieces, merges);
  if (!scores.missing.empty()) {
    return fmt::format(
        "GGUF stores scores instead of merges, and no scores are equivalent to these merges: {}",
        scores.missing);
  }
  add_vocabulary("llama", "default", pieces, scores.scores, to);
  to.flag("tokenizer.ggml.add_space_prefix", spaces != Spaces::plain);
  if (unknown) {
    to.number("tokenizer.ggml.unknown_token_id", *unknown);
  }
  note_prefix(spaces, notes);
  return "";
}

// The changes that Unigram makes to a text before it looks for tokens.
struct Preparation {
  std::string charsmap;
  bool one_space = false;  // between words and before the first word
  Spaces spaces = Spaces::unknown;
  bool cuts_at_white_space = false;  // of any kind, not only at spaces
};

// True if runs of spaces become one space, and spaces at the end are removed.
bool merges_spaces(std::span<const steps::Normalizer> normalizers) {
  return std::ranges::any_of(std::array<std::string, 2>{kSpace, " "}, [&](const auto& space) {
    return are(normalizers, {steps::Strip{false, true}, steps::Replace{{" {2,}", true}, space}});
  });
}

// Empty: GGUF has no keys for the changes.
std::optional<Preparation> preparation_of(const Description& d) {
  Preparation out;
  std::span<const steps::Normalizer> normalizers = d.normalizers;
  std::span<const steps::PreTokenizer> pre = d.pre_tokenizers;
  if (const auto* const map =
          normalizers.empty() ? nullptr : std::get_if<steps::Precompiled>(&normalizers[0])) {
    out.charsmap = map->precompiled_charsmap.bytes;
    normalizers = normalizers.subspan(1);
  }
  out.cuts_at_white_space = pre.size() == 2 && normalizers.empty() &&
                            std::holds_alternative<steps::WhitespaceSplit>(pre[0]);
  pre = pre.subspan(out.cuts_at_white_space ? 1 : 0);
  out.one_space = out.cuts_at_white_space || merges_spaces(normalizers);
  if (out.one_space) {
    normalizers = {};
  }
  out.spaces = spaces_of(normalizers, pre);
  const bool known =
      out.one_space ? out.spaces == Spaces::metaspace : out.spaces != Spaces::unknown;
  return known ? std::optional(std::move(out)) : std::nullopt;
}

// True if a word on its own has the same tokens as in a text.
bool has_words_alone(const Vocabulary& pieces) {
  const auto space = std::ranges::find(pieces.pieces, kSpace);
  return !crosses_words(pieces) && space != pieces.pieces.end() &&
         pieces.types[static_cast<size_t>(space - pieces.pieces.begin())] == TokenType::normal;
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

// Unigram: the tokens whose scores have the largest sum.
Missing add_unigram(const Description& d, Vocabulary& pieces, Metadata& to,
                    std::vector<std::string>& notes) {
  const auto how = preparation_of(d);
  if (!how) {
    return kNoKeys;
  }
  const auto& model = std::get<steps::Unigram>(d.model);
  const size_t unknown = model.unk_id.value_or(pieces.pieces.size());
  if (unknown >= pieces.pieces.size()) {
    return "it has no unknown token";
  }
  if (splits(d.pre_tokenizers) && !has_words_alone(pieces)) {
    return "it looks for tokens within words, but readers of GGUF look in the whole text";
  }
  pieces.types[unknown] = TokenType::unknown;
  if (model.byte_fallback) {
    mark(pieces.pieces[unknown], pieces);
  }
  add_vocabulary("t5", "default", pieces, pieces.scores, to);
  to.flag("tokenizer.ggml.add_space_prefix", how->spaces != Spaces::plain);
  to.flag("tokenizer.ggml.remove_extra_whitespaces", how->one_space);
  to.number("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
  if (!how->charsmap.empty()) {
    to.numbers(
        "tokenizer.ggml.precompiled_charsmap",
        std::span(reinterpret_cast<const uint8_t*>(how->charsmap.data()), how->charsmap.size()));
  }
  note_unigram(*how, pieces, model.byte_fallback, notes);
  return "";
}

void note_rules(const Description& d, std::vector<std::string>& notes) {
  const auto found = std::ranges::find_if(d.added, [](const text::AddedToken& token) {
    return token.single_word || token.lstrip || token.rstrip;
  });
  if (found != d.added.end()) {
    notes.push_back(
        fmt::format("The added token {} has its own matching rules (single_word, lstrip or "
                    "rstrip), which GGUF does not have.",
                    listed_name(found->content)));
  }
}

Result<Missing> add_json(const Model& model, Description d, int64_t vocabulary, Metadata& to,
                         std::vector<std::string>& notes) {
  const auto* const bpe = std::get_if<steps::Bpe>(&d.model);
  const bool unigram = std::holds_alternative<steps::Unigram>(d.model);
  if (bpe == nullptr && !unigram) {
    const auto type = std::visit([](const auto& m) { return m.kType; }, d.model);
    return fmt::format("it is {}, and only BPE and Unigram can be written", listed_name(type));
  }
  const auto around = surround_of(d);
  if (!around) {
    return Missing("GGUF has no keys for what it puts around a text");
  }
  BOWLINE_TRY_ASSIGN(Vocabulary pieces, vocabulary_of(d, vocabulary));
  const Missing missing = unigram              ? add_unigram(d, pieces, to, notes)
                          : bpe->byte_fallback ? add_scored(d, pieces, to, notes)
                                               : add_byte_level(d, pieces, to, notes);
  if (missing.empty()) {
    add_special_ids(model, *around, to);
    note_rules(d, notes);
  }
  return missing;
}

// Writes the keys tokenizer.*, from a tokenizer.json or from a GGUF tokenizer.
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
  Result<Description> d = text::describe_json(bytes);
  if (d.ok()) {
    return add_json(model, std::move(d).value(), vocabulary, to, notes);
  }
  std::string why = d.status().message();
  why.resize(std::min(why.find('\n'), why.size()));
  why.resize(why.size() - (why.ends_with('.') ? 1 : 0));
  return d.status().code() == Code::unsupported ? Missing(kNoKeys)
                                                : fmt::format("it cannot be read: {}", why);
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
    to.text("tokenizer.ggml.model", "none");  // as in llama.cpp for a model that takes only ids
    notes.push_back(fmt::format("The file has no tokenizer: {}.", missing));
  }
  return {};
}

}  // namespace bowline::command
