// Reads tokenizer.json of the package `tokenizers`.
#include <simdjson.h>

#include <algorithm>

#include "base/base64.h"
#include "base/escape.h"
#include "text/description.h"
#include "text/require.h"
#include "text/unicode.h"

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
Status unknown(std::string_view what, std::string_view type) {
  return Status(Code::unsupported,
                format("The {} \"{}\" is not supported.", what, short_name(type)));
}

// The types that simdjson reads, in words.
template <class T>
constexpr std::string_view kInWords = std::is_same_v<T, Object>             ? "an object"
                                      : std::is_same_v<T, Array>            ? "an array"
                                      : std::is_same_v<T, std::string_view> ? "text"
                                      : std::is_same_v<T, bool>             ? "true or false"
                                                                            : "a number";

template <class T>
Status read(std::string_view key, const Element& value, T& to) {
  return value.get(to) == simdjson::SUCCESS ? Status() : wrong(key, kInWords<T>);
}
template <class T>
Result<T> needed_at(const Object& o, std::string_view key) {
  const auto value = find(o, key);
  T out = {};
  BOWLINE_TRY(value ? read(key, *value, out) : missing(key));
  return out;
}

template <class Enum, size_t n>
Status read_name(std::string_view key, const Element& value,
                 const std::array<std::string_view, n>& names, Enum& to) {
  std::string_view name;
  BOWLINE_TRY(read(key, value, name));
  const auto found = std::ranges::find(names, name);
  to = static_cast<Enum>(found - names.begin());
  return found == names.end() ? unknown(key, name) : Status();
}

// Reads the fields of a step (description.h). A field that is absent or null keeps its value.
class Fields {
 public:
  explicit Fields(const Object& o) : o_(o) {}
  template <class T>
  void field(std::string_view key, T& to) {
    if (const auto value = find(o_, key); value && status_.ok()) {
      status_ = take(key, *value, to);
    }
  }
  template <class T>
  void needed(std::string_view key, T& to) {
    if (status_.ok() && !find(o_, key)) {
      status_ = missing(key);
    }
    field(key, to);
  }
  // Older files have `add_prefix_space` instead.
  void field(std::string_view key, Prepend& to) {
    bool adds = to != Prepend::never;
    field("add_prefix_space", adds);
    to = adds ? Prepend::always : Prepend::never;
    if (const auto value = find(o_, key); value && status_.ok()) {
      status_ = read_name(key, *value, kPrepend, to);
    }
  }
  // The first failure.
  const Status& status() const { return status_; }

 private:
  static Status take(std::string_view key, const Element& value, bool& to) {
    return read(key, value, to);
  }
  static Status take(std::string_view key, const Element& value, std::string& to) {
    std::string_view text;
    BOWLINE_TRY(read(key, value, text));
    to = text;
    return {};
  }
  static Status take(std::string_view key, const Element& value, size_t& to) {
    int64_t n = -1;
    BOWLINE_TRY(read(key, value, n));
    BOWLINE_TRY(n >= 0 ? Status() : wrong(key, kInWords<int64_t>));
    BOWLINE_REQUIRE_FILE(n <= kMostCount, "\"{}\" is {}, more than {}.", key, n, kMostCount);
    to = static_cast<size_t>(n);
    return {};
  }
  template <class T>
  static Status take(std::string_view key, const Element& value, std::optional<T>& to) {
    return take(key, value, to.emplace());
  }
  static Status take(std::string_view key, const Element& value, Letter& to) {
    BOWLINE_TRY(take(key, value, to.text));
    BOWLINE_REQUIRE_FILE(count_of(to.text) == 1, "\"{}\" is \"{}\", which is not one code point.",
                         key, short_name(to.text));
    return {};
  }
  static Status take(std::string_view key, const Element& value, Base64& to) {
    std::string_view text;
    BOWLINE_TRY(read(key, value, text));
    const auto bytes = from_base64(text);
    BOWLINE_REQUIRE_FILE(bytes, "The character map is not base64.");
    to.bytes = *bytes;
    return {};
  }
  static Status take(std::string_view key, const Element& value, PatternText& to) {
    Object pattern;
    BOWLINE_TRY(read(key, value, pattern));
    to.is_expression = !find(pattern, "String");
    Fields fields(pattern);
    fields.needed(to.is_expression ? "Regex" : "String", to.text);
    return fields.status();
  }
  static Status take(std::string_view key, const Element& value, Matches& to) {
    return read_name(key, value, kMatches, to);
  }

  const Object& o_;
  Status status_;
};

// Reads a step as the alternative of the variant `Step` with this type.
template <class Step, size_t i = 0>
Result<Step> read_step(std::string_view what, std::string_view type, const Object& o) {
  if constexpr (i == std::variant_size_v<Step>) {
    return unknown(what, type);
  } else {
    using Alternative = std::variant_alternative_t<i, Step>;
    if (type != Alternative::kType) {
      return read_step<Step, i + 1>(what, type, o);
    }
    Alternative out;
    Fields fields(o);
    Alternative::fields(out, fields);
    BOWLINE_TRY(Status(fields.status()));
    return Step(std::move(out));
  }
}

template <class Step>
Status append(std::string_view what, std::string_view type, const Object& o,
              std::vector<Step>& out) {
  BOWLINE_TRY_ASSIGN(out.emplace_back(), read_step<Step>(what, type, o));
  return {};
}

// ---- post-processors

// Reads an id. `what` names it in the message.
Status read_id(const Element& value, const std::string& what, std::vector<int32_t>& out) {
  int64_t id = -1;
  BOWLINE_REQUIRE_FILE(value.get(id) == simdjson::SUCCESS && id >= 0 && id <= INT32_MAX, "{}",
                       what);
  out.push_back(static_cast<int32_t>(id));
  return {};
}

Status read_special(const Object& of, std::string_view name, std::vector<int32_t>& out) {
  BOWLINE_TRY_ASSIGN(const Object known, needed_at<Object>(of, "special_tokens"));
  BOWLINE_TRY_ASSIGN(const Object token, needed_at<Object>(known, name));
  BOWLINE_TRY_ASSIGN(const Array ids, needed_at<Array>(token, "ids"));
  for (const Element& id : ids) {
    BOWLINE_TRY(read_id(
        id, format("An id of the special token \"{}\" is not valid.", short_name(name)), out));
  }
  return {};
}

Result<steps::Surround> read_template(const Object& o) {
  BOWLINE_TRY_ASSIGN(const Array single, needed_at<Array>(o, "single"));
  steps::Surround out;
  out.is_template = true;
  size_t texts = 0;
  for (const Element& value : single) {
    Object part;
    BOWLINE_REQUIRE_FILE(value.get(part) == simdjson::SUCCESS,
                         "A part of the template is not an object.");
    if (find(part, "Sequence")) {
      BOWLINE_TRY_ASSIGN(const Object sequence, needed_at<Object>(part, "Sequence"));
      BOWLINE_TRY_ASSIGN(const std::string_view id, needed_at<std::string_view>(sequence, "id"));
      texts += id == "A" ? 1 : 2;
      continue;
    }
    BOWLINE_TRY_ASSIGN(const Object special, needed_at<Object>(part, "SpecialToken"));
    BOWLINE_TRY_ASSIGN(const std::string_view name, needed_at<std::string_view>(special, "id"));
    BOWLINE_TRY(read_special(o, name, texts == 0 ? out.before : out.behind));
  }
  BOWLINE_REQUIRE_CODE(texts == 1, Code::unsupported,
                       "The template does not have the text \"A\" exactly once.");
  return out;
}

// Reads ["[SEP]", 102].
Status read_pair(const Object& o, std::string_view key, std::vector<int32_t>& out) {
  BOWLINE_TRY_ASSIGN(const Array pair, needed_at<Array>(o, key));
  const std::string what = format("\"{}\" is not a token and its id.", key);
  BOWLINE_REQUIRE_FILE(pair.size() == 2, "{}", what);
  return read_id(pair.at(1).value_unsafe(), what, out);
}

bool adds_by_template(const steps::PostProcessor& step) {
  const auto* around = std::get_if<steps::Surround>(&step);
  return around != nullptr && around->is_template &&
         !(around->before.empty() && around->behind.empty());
}

Status append(std::string_view what, std::string_view type, const Object& o,
              std::vector<steps::PostProcessor>& out) {
  const bool is_template = type == "TemplateProcessing", roberta = type == "RobertaProcessing";
  const bool has_pairs = roberta || type == "BertProcessing";
  // The package passes the result of a template on as several texts. A second post-processor then
  // loses tokens or fails.
  BOWLINE_REQUIRE_CODE((!is_template && !has_pairs) || std::ranges::none_of(out, adds_by_template),
                       Code::unsupported,
                       "The post-processor {} follows a TemplateProcessing that adds tokens. Let "
                       "one TemplateProcessing add all of them.",
                       type);
  if (is_template) {
    BOWLINE_TRY_ASSIGN(steps::Surround around, read_template(o));
    out.emplace_back(std::move(around));
    return {};
  }
  if (roberta || type == steps::ByteLevel::kType) {
    using Trim = std::variant<steps::ByteLevel>;
    BOWLINE_TRY_ASSIGN(const Trim step, read_step<Trim>(what, steps::ByteLevel::kType, o));
    out.emplace_back(std::get<0>(step));
  }
  if (has_pairs) {
    steps::Surround around;
    BOWLINE_TRY(read_pair(o, "cls", around.before));
    BOWLINE_TRY(read_pair(o, "sep", around.behind));
    out.emplace_back(std::move(around));
  }
  return has_pairs || type == steps::ByteLevel::kType ? Status() : unknown(what, type);
}

// ---- groups of steps

// Appends a step, or each step of a Sequence. `list`: the key of these steps.
template <class Step>
Status read_steps(const Element& step, std::string_view list, std::string_view what, int depth,
                  std::vector<Step>& out) {
  BOWLINE_REQUIRE_FILE(depth < kMostNesting, "Sequences are nested deeper than {}.", kMostNesting);
  Object o;
  BOWLINE_TRY(read("type", step, o));
  BOWLINE_TRY_ASSIGN(const std::string_view type, needed_at<std::string_view>(o, "type"));
  if (type != "Sequence") {
    return append(what, type, o, out);
  }
  BOWLINE_TRY_ASSIGN(const Array steps, needed_at<Array>(o, list));
  for (const Element& inner : steps) {
    BOWLINE_TRY(read_steps(inner, list, what, depth + 1, out));
  }
  return {};
}

// Reads the steps at a key of the file, if there are any.
template <class Step>
Status read_group(const Object& root, std::string_view key, std::string_view list,
                  std::string_view what, std::vector<Step>& out) {
  if (const auto step = find(root, key)) {
    BOWLINE_TRY(read_steps(*step, list, what, 0, out)
                    .at(format("While reading the {} of the tokenizer.", what)));
  }
  BOWLINE_REQUIRE_FILE(out.size() <= kMostSteps,
                       "A sequence of the tokenizer has {} steps, more than {}.", out.size(),
                       kMostSteps);
  return {};
}

// ---- the model

// Reads the tokens of an object {"token": id}.
Status read_pieces(const Object& model, Description& out) {
  BOWLINE_TRY_ASSIGN(const Object vocab, needed_at<Object>(model, "vocab"));
  out.vocabulary.reserve(vocab.size());
  for (const auto& [piece, value] : vocab) {
    int64_t id = 0;
    BOWLINE_REQUIRE_FILE(value.get(id) == simdjson::SUCCESS,
                         "The id of token \"{}\" is not an integer.", short_name(piece));
    out.vocabulary.emplace_back(piece, id);
  }
  return {};
}

// Reads the tokens of an array [["token", score], ...].
Status read_scored(const Object& model, Description& out) {
  BOWLINE_TRY_ASSIGN(const Array vocab, needed_at<Array>(model, "vocab"));
  for (const Element& entry : vocab) {
    Array pair;
    std::string_view piece;
    double score = 0;
    BOWLINE_REQUIRE_FILE(entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                             pair.at(0).get(piece) == simdjson::SUCCESS &&
                             pair.at(1).get(score) == simdjson::SUCCESS,
                         "Entry {} of \"vocab\" is not a token and its score.", out.scores.size());
    out.vocabulary.emplace_back(piece, std::ssize(out.vocabulary));
    out.scores.push_back(score);
  }
  return {};
}

// Reads the two tokens of a merge: "a b" or ["a", "b"].
Status read_merge(const Element& merge, std::string_view& left, std::string_view& right) {
  std::string_view both;
  if (merge.get(both) == simdjson::SUCCESS) {
    const size_t space = both.find(' ');
    BOWLINE_REQUIRE_FILE(
        space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos,
        "The merge \"{}\" is not two tokens.", short_name(both));
    left = both.substr(0, space);
    right = both.substr(space + 1);
    return {};
  }
  Array pair;
  const bool fine = merge.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                    pair.at(0).get(left) == simdjson::SUCCESS &&
                    pair.at(1).get(right) == simdjson::SUCCESS;
  BOWLINE_REQUIRE_FILE(fine, "A merge is not two tokens.");
  return {};
}

Status read_merges(const Object& model, Description& out) {
  if (const auto value = find(model, "dropout")) {
    double dropout = 0;
    BOWLINE_REQUIRE_CODE(
        value->get(dropout) == simdjson::SUCCESS && dropout == 0, Code::unsupported,
        "\"dropout\" of merges is not 0, which makes tokens random. It is not supported.");
  }
  BOWLINE_TRY_ASSIGN(const Array merges, needed_at<Array>(model, "merges"));
  out.merges.reserve(merges.size());
  for (const Element& merge : merges) {
    auto& [left, right] = out.merges.emplace_back();
    BOWLINE_TRY(read_merge(merge, left, right));
  }
  return {};
}

// Older files do not name the kind.
std::string_view kind_of(const Object& model) {
  return find(model, "merges")                     ? "BPE"
         : find(model, "max_input_chars_per_word") ? "WordPiece"
         : find(model, "unk_id")                   ? "Unigram"
                                                   : "WordLevel";
}

Status read_model(const Object& model, Description& out) {
  std::string type(kind_of(model));
  Fields fields(model);
  fields.field("type", type);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_TRY_ASSIGN(out.model, read_step<steps::Model>("model", type, model));
  BOWLINE_TRY(type == "Unigram" ? read_scored(model, out) : read_pieces(model, out));
  return type == "BPE" ? read_merges(model, out) : Status();
}

// ---- added tokens

Result<AddedToken> read_added(const Element& value) {
  Object o;
  BOWLINE_REQUIRE_FILE(value.get(o) == simdjson::SUCCESS, "An added token is not an object.");
  AddedToken out;
  Fields fields(o);
  fields.needed("content", out.content);
  fields.field("special", out.special);
  fields.field("single_word", out.single_word);
  fields.field("lstrip", out.lstrip);
  fields.field("rstrip", out.rstrip);
  out.normalized = !out.special;
  fields.field("normalized", out.normalized);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_TRY_ASSIGN(const auto id, needed_at<int64_t>(o, "id"));
  BOWLINE_REQUIRE_FILE(id >= 0, "\"id\" is not a number.");
  BOWLINE_REQUIRE_FILE(id <= INT32_MAX, "The added token \"{}\" has id {}.",
                       short_name(out.content), id);
  out.id = static_cast<int32_t>(id);
  return out;
}

}  // namespace

Result<Description> describe_json(std::span<const std::byte> bytes) {
  BOWLINE_REQUIRE_FILE(bytes.size() <= kMostBytes, "The tokenizer has {} bytes, more than {}.",
                       bytes.size(), kMostBytes);
  const auto parser = std::make_shared<simdjson::dom::parser>();
  Element document;
  const auto error =
      parser->parse(reinterpret_cast<const char*>(bytes.data()), bytes.size()).get(document);
  BOWLINE_REQUIRE_FILE(error == simdjson::SUCCESS, "The tokenizer is not valid JSON: {}",
                       simdjson::error_message(error));
  Object root;
  BOWLINE_REQUIRE_FILE(document.get(root) == simdjson::SUCCESS,
                       "The tokenizer is not a JSON object.");
  Description out;
  out.file = parser;
  BOWLINE_TRY(read_group(root, "normalizer", "normalizers", "normalizer", out.normalizers));
  BOWLINE_TRY(
      read_group(root, "pre_tokenizer", "pretokenizers", "pre-tokenizer", out.pre_tokenizers));
  BOWLINE_TRY(
      read_group(root, "post_processor", "processors", "post-processor", out.post_processors));
  if (find(root, "decoder")) {
    BOWLINE_TRY(read_group(root, "decoder", "decoders", "decoder", out.decoders.emplace()));
  }
  BOWLINE_TRY_ASSIGN(const Object model, needed_at<Object>(root, "model"));
  BOWLINE_TRY(read_model(model, out).at("While reading the model of the tokenizer."));
  if (find(root, "added_tokens")) {
    BOWLINE_TRY_ASSIGN(const Array tokens, needed_at<Array>(root, "added_tokens"));
    for (const Element& value : tokens) {
      BOWLINE_TRY_ASSIGN(AddedToken token, read_added(value));
      out.added.push_back(std::move(token));
    }
  }
  return out;
}

}  // namespace bowline::text
