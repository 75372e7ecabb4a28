// Reads tokenizer.json of the package `tokenizers`.
#include <simdjson.h>

#include <algorithm>

#include "base/escape.h"
#include "text/tokenizer_data.h"

namespace bowline::text {
namespace {

using Element = simdjson::dom::element;
using Object = simdjson::dom::object;
using Array = simdjson::dom::array;

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr int kMostNesting = 16;  // nested sequences
constexpr size_t kMostSteps = 64;
constexpr int64_t kMostCount = 1 << 20;

std::string short_name(std::string_view text) { return escaped(text.substr(0, 100)); }

// The value of a key. Empty if it is absent or null.
std::optional<Element> find(const Object& o, std::string_view key) {
  Element out;
  if (o.at_key(key).get(out) != simdjson::SUCCESS || out.is_null()) {
    return std::nullopt;
  }
  return out;
}

Status missing(std::string_view key) {
  return Status(Code::bad_file, format("\"{}\" is missing.", key));
}
Status wrong(std::string_view key, std::string_view what) {
  return Status(Code::bad_file, format("\"{}\" is not {}.", key, what));
}

// Read typed values. `otherwise` is the default if the key is absent or null; without a default
// that is an error.
Result<std::string_view> text_at(const Object& o, std::string_view key,
                                 std::optional<std::string_view> otherwise = {}) {
  const auto value = find(o, key);
  if (!value) {
    return otherwise ? Result<std::string_view>(*otherwise) : missing(key);
  }
  std::string_view out;
  return value->get(out) == simdjson::SUCCESS ? Result<std::string_view>(out) : wrong(key, "text");
}
Result<bool> flag_at(const Object& o, std::string_view key, std::optional<bool> otherwise = {}) {
  const auto value = find(o, key);
  if (!value) {
    return otherwise ? Result<bool>(*otherwise) : missing(key);
  }
  bool out = false;
  return value->get(out) == simdjson::SUCCESS ? Result<bool>(out) : wrong(key, "true or false");
}
Result<int64_t> number_at(const Object& o, std::string_view key,
                          std::optional<int64_t> otherwise = {}) {
  const auto value = find(o, key);
  if (!value) {
    return otherwise ? Result<int64_t>(*otherwise) : missing(key);
  }
  int64_t out = 0;
  if (value->get(out) != simdjson::SUCCESS || out < 0) {
    return wrong(key, "a number");
  }
  return out;
}
Result<size_t> count_at(const Object& o, std::string_view key,
                        std::optional<int64_t> otherwise = {}) {
  BOWLINE_TRY_ASSIGN(const int64_t n, number_at(o, key, otherwise));
  BOWLINE_REQUIRE_CODE(n <= kMostCount, Code::bad_file, "\"{}\" is {}, more than {}.", key, n,
                       kMostCount);
  return static_cast<size_t>(n);
}
Result<Object> object_at(const Object& o, std::string_view key) {
  const auto value = find(o, key);
  Object out;
  if (!value) {
    return missing(key);
  }
  return value->get(out) == simdjson::SUCCESS ? Result<Object>(out) : wrong(key, "an object");
}
Result<Array> array_at(const Object& o, std::string_view key) {
  const auto value = find(o, key);
  Array out;
  if (!value) {
    return missing(key);
  }
  return value->get(out) == simdjson::SUCCESS ? Result<Array>(out) : wrong(key, "an array");
}

Status unknown(std::string_view what, std::string_view type) {
  return Status(Code::unsupported,
                format("The {} \"{}\" is not supported.", what, short_name(type)));
}

// Calls read(type, object) for a step, or for each step of a Sequence. `list`: the key of these
// steps.
template <class F>
Status for_steps(const Element& step, std::string_view list, int depth, F&& read) {
  BOWLINE_REQUIRE_CODE(depth < kMostNesting, Code::bad_file, "Sequences are nested deeper than {}.",
                       kMostNesting);
  Object o;
  if (step.get(o) != simdjson::SUCCESS) {
    return wrong("type", "an object");
  }
  BOWLINE_TRY_ASSIGN(const std::string_view type, text_at(o, "type"));
  if (type != "Sequence") {
    return read(type, o);
  }
  BOWLINE_TRY_ASSIGN(const Array steps, array_at(o, list));
  for (const Element& inner : steps) {
    BOWLINE_TRY(for_steps(inner, list, depth + 1, read));
  }
  return {};
}

// Reads {"String": "..."} or {"Regex": "..."}.
Result<Pattern> pattern_at(const Object& o) {
  BOWLINE_TRY_ASSIGN(const Object pattern, object_at(o, "pattern"));
  if (find(pattern, "String")) {
    BOWLINE_TRY_ASSIGN(const std::string_view text, text_at(pattern, "String"));
    return Pattern::of_text(std::string(text));
  }
  BOWLINE_TRY_ASSIGN(const std::string_view expression, text_at(pattern, "Regex"));
  return Pattern::of_expression(expression);
}

// Reads a text with one code point.
Result<std::string> letter_at(const Object& o, std::string_view key,
                              std::optional<std::string_view> otherwise = {}) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, text_at(o, key, otherwise));
  BOWLINE_REQUIRE_CODE(count_of(text) == 1, Code::bad_file,
                       "\"{}\" is \"{}\", which is not one code point.", key, short_name(text));
  return std::string(text);
}

Result<std::string> from_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  for (const char c : text) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    BOWLINE_REQUIRE_CODE(digit >= 0, Code::bad_file, "The character map is not base64.");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return out;
}

// ---- normalizers

Result<Normalizer> read_bert(const Object& o) {
  BertRules rules;
  BOWLINE_TRY_ASSIGN(rules.clean_text, flag_at(o, "clean_text", true));
  BOWLINE_TRY_ASSIGN(rules.cjk, flag_at(o, "handle_chinese_chars", true));
  BOWLINE_TRY_ASSIGN(rules.lowercase, flag_at(o, "lowercase", true));
  BOWLINE_TRY_ASSIGN(rules.strip_accents, flag_at(o, "strip_accents", rules.lowercase));
  return bert(rules);
}

Result<Normalizer> read_normalizer(std::string_view type, const Object& o) {
  if (type == "NFC") {
    return normal_form(NormalForm::nfc);
  }
  if (type == "NFD") {
    return normal_form(NormalForm::nfd);
  }
  if (type == "NFKC") {
    return normal_form(NormalForm::nfkc);
  }
  if (type == "NFKD") {
    return normal_form(NormalForm::nfkd);
  }
  if (type == "Lowercase") {
    return lowercase();
  }
  if (type == "StripAccents") {
    return strip_accents();
  }
  if (type == "Nmt") {
    return nmt();
  }
  if (type == "ByteLevel") {
    return map_bytes();
  }
  if (type == "BertNormalizer") {
    return read_bert(o);
  }
  if (type == "Strip") {
    BOWLINE_TRY_ASSIGN(const bool left, flag_at(o, "strip_left"));
    BOWLINE_TRY_ASSIGN(const bool right, flag_at(o, "strip_right"));
    return strip(left, right);
  }
  if (type == "Prepend") {
    BOWLINE_TRY_ASSIGN(const std::string_view text, text_at(o, "prepend"));
    return prepend(std::string(text));
  }
  if (type == "Replace") {
    BOWLINE_TRY_ASSIGN(Pattern pattern, pattern_at(o));
    BOWLINE_TRY_ASSIGN(const std::string_view content, text_at(o, "content"));
    return replace(std::move(pattern), std::string(content));
  }
  if (type == "Precompiled") {
    BOWLINE_TRY_ASSIGN(const std::string_view map, text_at(o, "precompiled_charsmap"));
    BOWLINE_TRY_ASSIGN(const std::string bytes, from_base64(map));
    return precompiled(bytes);
  }
  return unknown("normalizer", type);
}

// ---- pre-tokenizers

Result<Matches> matches_at(const Object& o, std::optional<std::string_view> otherwise) {
  BOWLINE_TRY_ASSIGN(const std::string_view name, text_at(o, "behavior", otherwise));
  constexpr std::pair<std::string_view, Matches> names[] = {
      {"Removed", Matches::removed},
      {"Isolated", Matches::isolated},
      {"MergedWithPrevious", Matches::merged_with_previous},
      {"MergedWithNext", Matches::merged_with_next},
      {"Contiguous", Matches::contiguous}};
  for (const auto& [known, matches] : names) {
    if (known == name) {
      return matches;
    }
  }
  return unknown("behavior", name);
}

Result<Prepend> prepend_at(const Object& o) {
  BOWLINE_TRY_ASSIGN(const bool add, flag_at(o, "add_prefix_space", true));
  BOWLINE_TRY_ASSIGN(const std::string_view scheme,
                     text_at(o, "prepend_scheme", add ? "always" : "never"));
  if (scheme == "always") {
    return Prepend::always;
  }
  if (scheme == "first") {
    return Prepend::first;
  }
  if (scheme == "never") {
    return Prepend::never;
  }
  return unknown("prepend_scheme", scheme);
}

using PreTokenizers = std::vector<PreTokenizer>;

Status read_byte_level(const Object& o, PreTokenizers& out) {
  BOWLINE_TRY_ASSIGN(const bool space, flag_at(o, "add_prefix_space", true));
  BOWLINE_TRY_ASSIGN(const bool words, flag_at(o, "use_regex", true));
  if (space) {
    out.push_back(prefix_space());
  }
  if (words) {
    out.push_back(split(Pattern::gpt2(), Matches::isolated));
  }
  out.push_back(rewrite(map_bytes()));
  return {};
}

Status read_metaspace(const Object& o, PreTokenizers& out) {
  BOWLINE_TRY_ASSIGN(std::string replacement, letter_at(o, "replacement", "\u2581"));
  BOWLINE_TRY_ASSIGN(const Prepend where, prepend_at(o));
  BOWLINE_TRY_ASSIGN(const bool cuts, flag_at(o, "split", true));
  out.push_back(metaspace(replacement, where));
  if (cuts) {
    out.push_back(split(Pattern::of_text(std::move(replacement)), Matches::merged_with_next));
  }
  return {};
}

Status read_pre_tokenizer(std::string_view type, const Object& o, PreTokenizers& out) {
  const auto add = [&](Pattern pattern, Matches matches, bool invert = false) -> Status {
    out.push_back(split(std::move(pattern), matches, invert));
    return {};
  };
  if (type == "ByteLevel") {
    return read_byte_level(o, out);
  }
  if (type == "Metaspace") {
    return read_metaspace(o, out);
  }
  if (type == "Whitespace") {
    return add(Pattern::of_words(), Matches::removed, true);
  }
  if (type == "WhitespaceSplit") {
    return add(Pattern::of_class(is_white_space), Matches::removed);
  }
  if (type == "BertPreTokenizer") {
    BOWLINE_TRY(add(Pattern::of_class(is_white_space), Matches::removed));
    return add(Pattern::of_class(is_punctuation), Matches::isolated);
  }
  if (type == "Punctuation") {
    BOWLINE_TRY_ASSIGN(const Matches matches, matches_at(o, "Isolated"));
    return add(Pattern::of_class(is_punctuation), matches);
  }
  if (type == "Digits") {
    BOWLINE_TRY_ASSIGN(const bool each, flag_at(o, "individual_digits", false));
    return add(Pattern::of_class(is_number), each ? Matches::isolated : Matches::contiguous);
  }
  if (type == "CharDelimiterSplit") {
    BOWLINE_TRY_ASSIGN(std::string delimiter, letter_at(o, "delimiter"));
    return add(Pattern::of_text(std::move(delimiter)), Matches::removed);
  }
  if (type == "FixedLength") {
    BOWLINE_TRY_ASSIGN(const size_t length, count_at(o, "length", 5));
    BOWLINE_REQUIRE_CODE(length > 0, Code::bad_file, "\"length\" is 0.");
    out.push_back(fixed_length(length));
    return {};
  }
  if (type == "Split") {
    BOWLINE_TRY_ASSIGN(Pattern pattern, pattern_at(o));
    BOWLINE_TRY_ASSIGN(const Matches matches, matches_at(o, std::nullopt));
    BOWLINE_TRY_ASSIGN(const bool invert, flag_at(o, "invert", false));
    return add(std::move(pattern), matches, invert);
  }
  return unknown("pre-tokenizer", type);
}

// ---- models

// Reads the tokens of an object {"token": id}.
Status read_pieces(const Object& model, Vocabulary& out) {
  BOWLINE_TRY_ASSIGN(const Object vocab, object_at(model, "vocab"));
  out.expect(vocab.size());
  for (const auto& [piece, value] : vocab) {
    int64_t id = 0;
    BOWLINE_REQUIRE_CODE(value.get(id) == simdjson::SUCCESS, Code::bad_file,
                         "The id of token \"{}\" is not an integer.", short_name(piece));
    BOWLINE_TRY(out.add(piece, id));
  }
  return {};
}

// Reads the two tokens of a merge: "a b" or ["a", "b"].
Status read_merge(const Element& merge, std::string_view& left, std::string_view& right) {
  std::string_view both;
  if (merge.get(both) == simdjson::SUCCESS) {
    const size_t space = both.find(' ');
    BOWLINE_REQUIRE_CODE(
        space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos,
        Code::bad_file, "The merge \"{}\" is not two tokens.", short_name(both));
    left = both.substr(0, space);
    right = both.substr(space + 1);
    return {};
  }
  Array pair;
  const bool fine = merge.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                    pair.at(0).get(left) == simdjson::SUCCESS &&
                    pair.at(1).get(right) == simdjson::SUCCESS;
  BOWLINE_REQUIRE_CODE(fine, Code::bad_file, "A merge is not two tokens.");
  return {};
}

Result<std::vector<Bpe::Rule>> read_merges(const Object& model, const Vocabulary& v,
                                           const Bpe::Options& options) {
  BOWLINE_TRY_ASSIGN(const Array merges, array_at(model, "merges"));
  std::vector<Bpe::Rule> out;
  out.reserve(merges.size());
  std::string merged;
  for (const Element& merge : merges) {
    std::string_view left;
    std::string_view right;
    BOWLINE_TRY(read_merge(merge, left, right));
    merged = left;
    merged += right.substr(
        std::min(right.size(), right.starts_with(options.prefix) ? options.prefix.size() : 0));
    const auto id = [&](std::string_view piece) -> Result<int32_t> {
      const auto found = v.find(piece);
      BOWLINE_REQUIRE_CODE(
          found.has_value(), Code::bad_file,
          "Merge {} (\"{}\" and \"{}\") names \"{}\", which is not in the vocabulary.", out.size(),
          short_name(left), short_name(right), short_name(piece));
      return *found;
    };
    Bpe::Rule rule;
    BOWLINE_TRY_ASSIGN(rule.left, id(left));
    BOWLINE_TRY_ASSIGN(rule.right, id(right));
    BOWLINE_TRY_ASSIGN(rule.merged, id(merged));
    rule.rank = static_cast<uint32_t>(out.size());
    out.push_back(rule);
  }
  return out;
}

Status read_bpe(const Object& model, bool byte_level, TokenizerData& data) {
  BOWLINE_TRY(read_pieces(model, data.vocabulary));
  Bpe::Options o;
  o.byte_level = byte_level;
  BOWLINE_TRY_ASSIGN(o.byte_fallback, flag_at(model, "byte_fallback", false));
  BOWLINE_TRY_ASSIGN(o.fuse_unknown, flag_at(model, "fuse_unk", false));
  BOWLINE_TRY_ASSIGN(o.ignore_merges, flag_at(model, "ignore_merges", false));
  BOWLINE_TRY_ASSIGN(o.unknown, text_at(model, "unk_token", ""));
  BOWLINE_TRY_ASSIGN(o.prefix, text_at(model, "continuing_subword_prefix", ""));
  BOWLINE_TRY_ASSIGN(o.suffix, text_at(model, "end_of_word_suffix", ""));
  const bool has_ends = !o.prefix.empty() || !o.suffix.empty();
  BOWLINE_REQUIRE_CODE(!has_ends || (!o.ignore_merges && !o.byte_fallback), Code::unsupported,
                       "A BPE with continuing_subword_prefix or end_of_word_suffix and with {} is "
                       "not supported.",
                       o.ignore_merges ? "ignore_merges" : "byte_fallback");
  double dropout = 0;
  if (const auto value = find(model, "dropout")) {
    BOWLINE_REQUIRE_CODE(
        value->get(dropout) == simdjson::SUCCESS && dropout == 0, Code::unsupported,
        "\"dropout\" of merges is not 0, which makes tokens random. It is not supported.");
  }
  BOWLINE_TRY_ASSIGN(const std::vector<Bpe::Rule> rules, read_merges(model, data.vocabulary, o));
  BOWLINE_TRY_ASSIGN(data.model, Bpe::create(data.vocabulary, std::move(o), rules));
  data.kind = byte_level ? "byte-level BPE" : "BPE";
  return {};
}

Status read_word_piece(const Object& model, TokenizerData& data) {
  BOWLINE_TRY(read_pieces(model, data.vocabulary));
  WordPiece::Options o;
  BOWLINE_TRY_ASSIGN(o.unknown, text_at(model, "unk_token", "[UNK]"));
  BOWLINE_TRY_ASSIGN(o.prefix, text_at(model, "continuing_subword_prefix", "##"));
  BOWLINE_TRY_ASSIGN(o.longest, count_at(model, "max_input_chars_per_word", 100));
  BOWLINE_TRY_ASSIGN(data.model, WordPiece::create(data.vocabulary, o));
  data.kind = "WordPiece";
  return {};
}

Status read_unigram(const Object& model, TokenizerData& data) {
  BOWLINE_TRY_ASSIGN(const Array vocab, array_at(model, "vocab"));
  data.vocabulary.expect(vocab.size());
  std::vector<double> scores;
  scores.reserve(vocab.size());
  for (const Element& entry : vocab) {
    Array pair;
    std::string_view piece;
    double score = 0;
    BOWLINE_REQUIRE_CODE(entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                             pair.at(0).get(piece) == simdjson::SUCCESS &&
                             pair.at(1).get(score) == simdjson::SUCCESS,
                         Code::bad_file, "Entry {} of \"vocab\" is not a token and its score.",
                         scores.size());
    BOWLINE_TRY(data.vocabulary.add(piece, std::ssize(scores)));
    scores.push_back(score);
  }
  Unigram::Options o;
  BOWLINE_TRY_ASSIGN(o.byte_fallback, flag_at(model, "byte_fallback", false));
  if (find(model, "unk_id")) {
    BOWLINE_TRY_ASSIGN(const size_t id, count_at(model, "unk_id"));
    o.unknown = static_cast<int32_t>(id);
  }
  BOWLINE_TRY_ASSIGN(data.model, Unigram::create(data.vocabulary, std::move(scores), o));
  data.kind = "Unigram";
  return {};
}

Status read_word_level(const Object& model, TokenizerData& data) {
  BOWLINE_TRY(read_pieces(model, data.vocabulary));
  BOWLINE_TRY_ASSIGN(const std::string_view unknown, text_at(model, "unk_token", ""));
  BOWLINE_TRY_ASSIGN(data.model, WordLevel::create(data.vocabulary, unknown));
  data.kind = "WordLevel";
  return {};
}

// Older files do not name the kind.
std::string_view kind_of(const Object& model) {
  if (find(model, "merges")) {
    return "BPE";
  }
  if (find(model, "max_input_chars_per_word")) {
    return "WordPiece";
  }
  if (find(model, "unk_id")) {
    return "Unigram";
  }
  return "WordLevel";
}

Status read_model(const Object& model, bool byte_level, TokenizerData& data) {
  BOWLINE_TRY_ASSIGN(const std::string_view type, text_at(model, "type", kind_of(model)));
  if (type == "BPE") {
    return read_bpe(model, byte_level, data);
  }
  if (type == "WordPiece") {
    return read_word_piece(model, data);
  }
  if (type == "Unigram") {
    return read_unigram(model, data);
  }
  if (type == "WordLevel") {
    return read_word_level(model, data);
  }
  return unknown("model", type);
}

// ---- post-processors

Status add_special(const Object& known, std::string_view name, std::vector<int32_t>& out) {
  BOWLINE_TRY_ASSIGN(const Object token, object_at(known, name));
  BOWLINE_TRY_ASSIGN(const Array ids, array_at(token, "ids"));
  for (const Element& value : ids) {
    int64_t id = -1;
    BOWLINE_REQUIRE_CODE(value.get(id) == simdjson::SUCCESS && id >= 0 && id <= INT32_MAX,
                         Code::bad_file, "An id of the special token \"{}\" is not valid.",
                         short_name(name));
    out.push_back(static_cast<int32_t>(id));
  }
  return {};
}

Result<PostProcessor> read_template(const Object& o) {
  BOWLINE_TRY_ASSIGN(const Array single, array_at(o, "single"));
  PostProcessor::Surround out;
  out.is_template = true;
  bool behind = false;
  for (const Element& value : single) {
    Object part;
    BOWLINE_REQUIRE_CODE(value.get(part) == simdjson::SUCCESS, Code::bad_file,
                         "A part of the template is not an object.");
    if (find(part, "Sequence")) {
      BOWLINE_TRY_ASSIGN(const Object sequence, object_at(part, "Sequence"));
      BOWLINE_TRY_ASSIGN(const std::string_view id, text_at(sequence, "id"));
      BOWLINE_REQUIRE_CODE(id == "A" && !behind, Code::unsupported,
                           "The template does not have the text \"A\" exactly once.");
      behind = true;
      continue;
    }
    BOWLINE_TRY_ASSIGN(const Object special, object_at(part, "SpecialToken"));
    BOWLINE_TRY_ASSIGN(const std::string_view name, text_at(special, "id"));
    BOWLINE_TRY_ASSIGN(const Object known, object_at(o, "special_tokens"));
    BOWLINE_TRY(add_special(known, name, behind ? out.behind : out.before));
  }
  BOWLINE_REQUIRE_CODE(behind, Code::unsupported,
                       "The template does not have the text \"A\" exactly once.");
  return PostProcessor{std::move(out)};
}

bool is_template(const PostProcessor& p) {
  const auto* around = std::get_if<PostProcessor::Surround>(&p.step);
  return around != nullptr && around->is_template &&
         !(around->before.empty() && around->behind.empty());
}

// Reads ["[SEP]", 102].
Result<int32_t> pair_at(const Object& o, std::string_view key) {
  BOWLINE_TRY_ASSIGN(const Array pair, array_at(o, key));
  int64_t id = -1;
  BOWLINE_REQUIRE_CODE(
      pair.size() == 2 && pair.at(1).get(id) == simdjson::SUCCESS && id >= 0 && id <= INT32_MAX,
      Code::bad_file, "\"{}\" is not a token and its id.", key);
  return static_cast<int32_t>(id);
}

Status read_post_processor(std::string_view type, const Object& o,
                           std::vector<PostProcessor>& out) {
  // The package passes the result of a template on as several texts. A second post-processor then
  // loses tokens or fails.
  const bool is_around =
      type == "TemplateProcessing" || type == "BertProcessing" || type == "RobertaProcessing";
  BOWLINE_REQUIRE_CODE(!is_around || std::ranges::none_of(out, is_template), Code::unsupported,
                       "The post-processor {} follows a TemplateProcessing that adds tokens. Let "
                       "one TemplateProcessing add all of them.",
                       type);
  if (type == "TemplateProcessing") {
    BOWLINE_TRY_ASSIGN(PostProcessor p, read_template(o));
    out.push_back(std::move(p));
    return {};
  }
  const bool roberta = type == "RobertaProcessing";
  if (type == "ByteLevel" || roberta) {
    BOWLINE_TRY_ASSIGN(const bool trims, flag_at(o, "trim_offsets", true));
    BOWLINE_TRY_ASSIGN(const bool space, flag_at(o, "add_prefix_space", true));
    if (trims) {
      out.push_back({PostProcessor::Trim{space}});
    }
  }
  if (type == "BertProcessing" || roberta) {
    PostProcessor::Surround around;
    BOWLINE_TRY_ASSIGN(const int32_t cls, pair_at(o, "cls"));
    BOWLINE_TRY_ASSIGN(const int32_t sep, pair_at(o, "sep"));
    out.push_back({PostProcessor::Surround{{cls}, {sep}}});
  }
  return type == "ByteLevel" || type == "BertProcessing" || roberta
             ? Status()
             : unknown("post-processor", type);
}

// ---- decoders

Status read_decoder(std::string_view type, const Object& o, bool& fused,
                    std::vector<DecodeStepMaker>& out) {
  const auto add = [&](DecodeStepMaker step) -> Status {
    out.push_back(std::move(step));
    return {};
  };
  if (type == "ByteLevel" || type == "Fuse") {
    fused = true;
    return add(type == "Fuse" ? decode_fuse() : decode_bytes());
  }
  if (type == "ByteFallback") {
    return add(decode_byte_fallback());
  }
  if (type == "Metaspace") {
    BOWLINE_TRY_ASSIGN(std::string replacement, letter_at(o, "replacement", "\u2581"));
    BOWLINE_TRY_ASSIGN(const Prepend where, prepend_at(o));
    return add(decode_metaspace(std::move(replacement), where != Prepend::never));
  }
  if (type == "WordPiece") {
    BOWLINE_TRY_ASSIGN(const std::string_view prefix, text_at(o, "prefix", "##"));
    BOWLINE_TRY_ASSIGN(const bool cleanup, flag_at(o, "cleanup", true));
    return add(decode_word_piece(std::string(prefix), cleanup));
  }
  if (type == "BPEDecoder") {
    BOWLINE_TRY_ASSIGN(const std::string_view suffix, text_at(o, "suffix", "</w>"));
    return add(decode_suffix(std::string(suffix)));
  }
  if (type == "Replace") {
    BOWLINE_TRY_ASSIGN(Pattern pattern, pattern_at(o));
    BOWLINE_TRY_ASSIGN(const std::string_view content, text_at(o, "content"));
    return add(decode_replace(std::move(pattern), std::string(content)));
  }
  if (type == "Strip") {
    BOWLINE_TRY_ASSIGN(std::string content, letter_at(o, "content"));
    BOWLINE_TRY_ASSIGN(const size_t start, count_at(o, "start"));
    BOWLINE_TRY_ASSIGN(const size_t stop, count_at(o, "stop"));
    return add(decode_strip(std::move(content), start, stop, fused));
  }
  if (type == "CTC") {
    BOWLINE_TRY_ASSIGN(const std::string_view pad, text_at(o, "pad_token", "<pad>"));
    BOWLINE_TRY_ASSIGN(const std::string_view delimiter, text_at(o, "word_delimiter_token", "|"));
    BOWLINE_TRY_ASSIGN(const bool cleanup, flag_at(o, "cleanup", true));
    return add(decode_ctc(std::string(pad), std::string(delimiter), cleanup));
  }
  return unknown("decoder", type);
}

// ---- the file

Result<std::vector<AddedToken>> read_added(const Object& root) {
  std::vector<AddedToken> out;
  if (!find(root, "added_tokens")) {
    return out;
  }
  BOWLINE_TRY_ASSIGN(const Array tokens, array_at(root, "added_tokens"));
  for (const Element& value : tokens) {
    Object o;
    BOWLINE_REQUIRE_CODE(value.get(o) == simdjson::SUCCESS, Code::bad_file,
                         "An added token is not an object.");
    AddedToken token;
    BOWLINE_TRY_ASSIGN(const std::string_view content, text_at(o, "content"));
    token.content = content;
    BOWLINE_TRY_ASSIGN(const int64_t id, number_at(o, "id"));
    BOWLINE_REQUIRE_CODE(id <= INT32_MAX, Code::bad_file, "The added token \"{}\" has id {}.",
                         short_name(content), id);
    token.id = static_cast<int32_t>(id);
    BOWLINE_TRY_ASSIGN(token.special, flag_at(o, "special", false));
    BOWLINE_TRY_ASSIGN(token.single_word, flag_at(o, "single_word", false));
    BOWLINE_TRY_ASSIGN(token.lstrip, flag_at(o, "lstrip", false));
    BOWLINE_TRY_ASSIGN(token.rstrip, flag_at(o, "rstrip", false));
    BOWLINE_TRY_ASSIGN(token.normalized, flag_at(o, "normalized", !token.special));
    out.push_back(std::move(token));
  }
  return out;
}

// True if the model is a BPE without other letters than those of bytes.
bool has_plain_merges(const Object& model) {
  const auto is_empty = [&](std::string_view key) {
    const auto text = text_at(model, key, "");
    return text.ok() && text.value().empty();
  };
  const auto byte_fallback = flag_at(model, "byte_fallback", false);
  return find(model, "merges") && is_empty("continuing_subword_prefix") &&
         is_empty("end_of_word_suffix") && byte_fallback.ok() && !byte_fallback.value();
}

// True if the last pre-tokenizer converts bytes to letters.
bool ends_in_byte_level(const Object& root) {
  auto step = find(root, "pre_tokenizer");
  for (int depth = 0; step && depth < kMostNesting; ++depth) {
    Object o;
    std::string_view type;
    if (step->get(o) != simdjson::SUCCESS || o.at_key("type").get(type) != simdjson::SUCCESS) {
      return false;
    }
    if (type != "Sequence") {
      return type == "ByteLevel";
    }
    Array steps;
    if (o.at_key("pretokenizers").get(steps) != simdjson::SUCCESS || steps.size() == 0) {
      return false;
    }
    step = steps.at(steps.size() - 1).value();
  }
  return false;
}

Status read_steps(const Object& root, TokenizerData& data) {
  if (const auto step = find(root, "normalizer")) {
    BOWLINE_TRY(
        for_steps(*step, "normalizers", 0, [&](std::string_view type, const Object& o) -> Status {
          BOWLINE_TRY_ASSIGN(Normalizer n, read_normalizer(type, o));
          data.normalizers.push_back(std::move(n));
          return {};
        }).at("While reading the normalizer of the tokenizer."));
  }
  if (const auto step = find(root, "pre_tokenizer")) {
    BOWLINE_TRY(for_steps(*step, "pretokenizers", 0, [&](std::string_view type, const Object& o) {
                  return read_pre_tokenizer(type, o, data.pre_tokenizers);
                }).at("While reading the pre-tokenizer of the tokenizer."));
  }
  if (const auto step = find(root, "post_processor")) {
    BOWLINE_TRY(for_steps(*step, "processors", 0, [&](std::string_view type, const Object& o) {
                  return read_post_processor(type, o, data.post_processors);
                }).at("While reading the post-processor of the tokenizer."));
  }
  bool fused = false;
  if (const auto step = find(root, "decoder")) {
    BOWLINE_TRY(for_steps(*step, "decoders", 0, [&](std::string_view type, const Object& o) {
                  return read_decoder(type, o, fused, data.decoders);
                }).at("While reading the decoder of the tokenizer."));
  } else {
    data.decoders = {decode_spaced()};
  }
  const size_t most = std::max({data.normalizers.size(), data.pre_tokenizers.size(),
                                data.post_processors.size(), data.decoders.size()});
  BOWLINE_REQUIRE_CODE(most <= kMostSteps, Code::bad_file,
                       "A sequence of the tokenizer has {} steps, more than {}.", most, kMostSteps);
  return {};
}

}  // namespace

Result<SharedData> read_json(std::span<const std::byte> bytes) {
  BOWLINE_REQUIRE_CODE(bytes.size() <= kMostBytes, Code::bad_file,
                       "The tokenizer has {} bytes, more than {}.", bytes.size(), kMostBytes);
  simdjson::dom::parser parser;
  Element document;
  const auto error =
      parser.parse(reinterpret_cast<const char*>(bytes.data()), bytes.size()).get(document);
  BOWLINE_REQUIRE_CODE(error == simdjson::SUCCESS, Code::bad_file,
                       "The tokenizer is not valid JSON: {}", simdjson::error_message(error));
  Object root;
  BOWLINE_REQUIRE_CODE(document.get(root) == simdjson::SUCCESS, Code::bad_file,
                       "The tokenizer is not a JSON object.");
  auto data = std::make_shared<TokenizerData>();
  BOWLINE_TRY(read_steps(root, *data));
  BOWLINE_TRY_ASSIGN(const Object model, object_at(root, "model"));
  const bool byte_level = ends_in_byte_level(root) && has_plain_merges(model);
  if (byte_level) {
    data->pre_tokenizers.pop_back();  // the model takes raw bytes
  }
  BOWLINE_TRY(read_model(model, byte_level, *data).at("While reading the model of the tokenizer."));
  BOWLINE_TRY_ASSIGN(std::vector<AddedToken> added, read_added(root));
  BOWLINE_TRY(add_tokens(*data, std::move(added)));
  return SharedData(std::move(data));
}

}  // namespace bowline::text
