// bowline tokenize: prints the tokens of a text with their ids and bytes.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/status.h"
#include "bowline_text.h"
#include "common/flags.h"
#include "common/tokenizers.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct TokenizeOptions {
  std::string tokenizer;
  std::optional<std::string> text;
  std::string file;
  std::string format = "text";
  bool lines = false;
  bool null = false;
  bool no_special = false;
  bool plain_special = false;
  size_t max_tokens = 0;
};

// {"ids": [...], "pieces": [...], "offsets": [[begin, end], ...], "special": [...], "text": "..."}:
// `text` is decoded from the ids.
Result<nlohmann::json> as_json(const text::Tokenizer& tokenizer, const text::Encoding& e) {
  nlohmann::json pieces = nlohmann::json::array();
  nlohmann::json offsets = nlohmann::json::array();
  for (size_t i = 0; i < e.ids.size(); ++i) {
    pieces.push_back(tokenizer.id_to_token(e.ids[i]));
    offsets.push_back({e.offsets[i].begin, e.offsets[i].end});
  }
  BOWLINE_TRY_ASSIGN(std::string decoded, tokenizer.decode(e.ids));
  return nlohmann::json{{"ids", e.ids},
                        {"pieces", std::move(pieces)},
                        {"offsets", std::move(offsets)},
                        {"special", e.special},
                        {"text", std::move(decoded)}};
}

void print_rows(const text::Tokenizer& tokenizer, const text::Encoding& e) {
  for (size_t i = 0; i < e.ids.size(); ++i) {
    const text::Offset at = e.offsets[i];
    print("{:>8}  {:>12}  {}{}\n", e.ids[i],
          e.special[i] != 0 ? std::string("added") : fmt::format("{}-{}", at.begin, at.end),
          tokenizer.id_to_token(e.ids[i]), tokenizer.is_special(e.ids[i]) ? "  (special)" : "");
  }
}

Status show(const text::Tokenizer& tokenizer, std::string_view text, const TokenizeOptions& o) {
  text::EncodeOptions options;
  options.special_tokens = !o.no_special;
  options.parse_special = !o.plain_special;
  options.max_tokens = o.max_tokens;
  BOWLINE_TRY_ASSIGN(const text::Encoding e, tokenizer.encode(text, options));
  if (o.format == "json") {
    BOWLINE_TRY_ASSIGN(const nlohmann::json row, as_json(tokenizer, e));
    print_json_line(row);
    return {};
  }
  print_rows(tokenizer, e);
  if (o.lines || o.null) {
    print("\n");
  }
  return {};
}

Result<int> tokenize(const TokenizeOptions& o) {
  if (o.text.has_value() == !o.file.empty()) {
    return fail(kUsage, "Give either TEXT or --file.");
  }
  BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, open_tokenizer(o.tokenizer));
  std::string all = o.text.value_or("");
  if (!o.file.empty()) {
    BOWLINE_TRY_ASSIGN(all, read_any(o.file));
  }
  if (!o.lines && !o.null) {
    BOWLINE_TRY(show(tokenizer, all, o));
    return kOk;
  }
  const char separator = o.null ? '\0' : '\n';
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(separator, at), all.size());
    BOWLINE_TRY(show(tokenizer, std::string_view(all).substr(at, end - at), o));
    at = end + 1;
  }
  return kOk;
}

}  // namespace

void add_tokenize(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<TokenizeOptions>(
      app, context, tokenize, "tokenize", "Shows the tokens of a text, with ids and bytes",
      "bowline tokenize model.bowline \"A library that draws maps\"\n"
      "bowline tokenize tokenizer.json --file texts.txt --lines -o json");
  verb->add_option("tokenizer", o->tokenizer, "Model file, tokenizer.json or GGUF file")
      ->required();
  verb->add_option("text", o->text, "Text to tokenize [or use --file]");
  add_text(verb, "--file", o->file, "Read the text from a file; - is standard input", "FILE");
  CLI::Option* lines = verb->add_flag("--lines", o->lines, "Tokenize each line on its own");
  verb->add_flag("--null", o->null, "Tokenize each NUL-terminated text on its own")
      ->excludes(lines);
  verb->add_flag("--no-special", o->no_special, "Add no special tokens around the text");
  verb->add_flag("--plain-special", o->plain_special,
                 "Treat special tokens in the text as plain text");
  add_number(verb, "--max-tokens", o->max_tokens, "Truncate to this many tokens [no limit]", 1,
             1 << 30);
  add_format(verb, o->format);
}

}  // namespace bowline::command
