// Creates a tokenizer from its description.
#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "text/require.h"
#include "text/tokenizer_data.h"

namespace bowline::text {
namespace {

constexpr size_t kLongestMerged = 1 << 10;  // bytes of a merged token

Status make_decoders(const std::optional<std::vector<steps::Decoder>>& decoders,
                     std::vector<DecodeStepMaker>& out) {
  if (!decoders) {
    out = {decode_spaced()};
    return {};
  }
  bool fused = false;
  for (const steps::Decoder& step : *decoders) {
    BOWLINE_TRY_ASSIGN(DecodeStepMaker made, make_decoder(step, fused));
    out.push_back(std::move(made));
    fused = fused || std::holds_alternative<steps::ByteLevel>(step) ||
            std::holds_alternative<steps::Fuse>(step);
  }
  return {};
}

// ---- models

Result<std::vector<MergeRule>> listed_rules(const Description& d, const Vocabulary& v,
                                            const std::string& prefix) {
  std::vector<MergeRule> out;
  out.reserve(d.merges.size());
  std::string merged;
  for (const auto& merge : d.merges) {
    const std::string_view left = merge.first, right = merge.second;
    merged = left;
    merged += right.substr(std::min(right.size(), right.starts_with(prefix) ? prefix.size() : 0));
    const auto id = [&](std::string_view piece) -> Result<int32_t> {
      const auto found = v.find(piece);
      BOWLINE_REQUIRE_FILE(
          found.has_value(),
          "Merge {} (\"{}\" and \"{}\") names \"{}\", which is not in the vocabulary.", out.size(),
          escaped(left.substr(0, 100)), escaped(right.substr(0, 100)),
          escaped(piece.substr(0, 100)));
      return *found;
    };
    MergeRule rule;
    BOWLINE_TRY_ASSIGN(rule.left, id(left));
    BOWLINE_TRY_ASSIGN(rule.right, id(right));
    BOWLINE_TRY_ASSIGN(rule.merged, id(merged));
    rule.rank = static_cast<uint32_t>(out.size());
    out.push_back(rule);
  }
  return out;
}

// Derives the merges of a vocabulary with scores: two tokens merge if their concatenation is a
// token, the highest score first.
Result<std::vector<MergeRule>> scored_rules(const Description& d, const Vocabulary& v) {
  const auto is_text = [&](int32_t id) { return takes_part(d.type(static_cast<size_t>(id))); };
  BOWLINE_REQUIRE_FILE(std::ranges::all_of(d.scores, [](double s) { return std::isfinite(s); }),
                       "A score is not finite.");
  std::vector<double> order = d.scores;
  std::ranges::sort(order, std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<MergeRule> out;
  for (size_t i = 0; i < d.scores.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view piece = v.piece(id);
    if (!is_text(id) || piece.empty()) {
      continue;
    }
    BOWLINE_REQUIRE_FILE(piece.size() <= kLongestMerged, "Token {} has {} bytes, more than {}.", id,
                         piece.size(), kLongestMerged);
    const auto rank = static_cast<uint32_t>(
        std::ranges::lower_bound(order, d.scores[i], std::greater<>()) - order.begin());
    for (size_t cut = length_of(piece[0]); cut < piece.size(); cut += length_of(piece[cut])) {
      const auto left = v.find(piece.substr(0, cut));
      const auto right = left ? v.find(piece.substr(cut)) : std::nullopt;
      if (right && is_text(*left) && is_text(*right)) {
        out.push_back({*left, *right, id, rank});
      }
    }
  }
  return out;
}

// True for a BPE on bytes: the last pre-tokenizer converts bytes to letters, and the model adds no
// byte tokens, prefix or suffix.
bool is_byte_level(const Description& d) {
  const auto* bpe = std::get_if<steps::Bpe>(&d.model);
  return bpe != nullptr && !bpe->byte_fallback &&
         bpe->continuing_subword_prefix.value_or("").empty() &&
         bpe->end_of_word_suffix.value_or("").empty() && !d.pre_tokenizers.empty() &&
         std::holds_alternative<steps::ByteLevel>(d.pre_tokenizers.back());
}

Result<TokenModel> model_of(const steps::Bpe& s, const Description& d, const Vocabulary& v) {
  const std::string prefix = s.continuing_subword_prefix.value_or("");
  const bool has_ends = !prefix.empty() || !s.end_of_word_suffix.value_or("").empty();
  BOWLINE_REQUIRE_CODE(!has_ends || (!s.ignore_merges && !s.byte_fallback), Code::unsupported,
                       "A BPE with continuing_subword_prefix or end_of_word_suffix and with {} "
                       "is not supported.",
                       s.ignore_merges ? "ignore_merges" : "byte_fallback");
  BOWLINE_TRY_ASSIGN(const std::vector<MergeRule> rules,
                     d.scores.empty() ? listed_rules(d, v, prefix) : scored_rules(d, v));
  return make_bpe(v, s, is_byte_level(d), rules);
}
Result<TokenModel> model_of(const steps::WordPiece& s, const Description&, const Vocabulary& v) {
  return make_word_piece(v, s);
}
Result<TokenModel> model_of(const steps::Unigram& s, const Description& d, const Vocabulary& v) {
  std::vector<double> searched;
  for (size_t i = 0; i < d.scores.size(); ++i) {
    const TokenType type = d.type(i);  // a byte is also found by its spelling, as in `tokenizers`
    const bool is_searched = type == TokenType::normal || type == TokenType::byte;
    searched.push_back(is_searched ? d.scores[i] : -INFINITY);
  }
  return make_unigram(v, s, std::move(searched));
}
Result<TokenModel> model_of(const steps::WordLevel& s, const Description&, const Vocabulary& v) {
  return make_word_level(v, s);
}

Status make_model(const Description& d, TokenizerData& data) {
  data.vocabulary.expect(d.vocabulary.size());
  for (const auto& [piece, id] : d.vocabulary) {
    BOWLINE_TRY(data.vocabulary.add(piece, id));
  }
  data.kind = is_byte_level(d) ? "byte-level BPE"
                               : std::visit([](const auto& s) { return s.kType; }, d.model);
  BOWLINE_TRY_ASSIGN(
      data.model,
      std::visit([&](const auto& s) { return model_of(s, d, data.vocabulary); }, d.model));
  return {};
}

// Adds the tokens to the vocabulary.
Status add_tokens(const Description& d, TokenizerData& data) {
  std::vector<AddedToken> kept;
  for (const AddedToken& token : d.added) {
    if (token.content.empty()) {
      continue;
    }
    const auto there = data.vocabulary.find(token.content);
    BOWLINE_REQUIRE_FILE(
        !there || *there == token.id,
        "The added token \"{}\" has id {}, but the vocabulary has this text as token {}.",
        escaped(token.content.substr(0, 100)), token.id, *there);
    if (!there) {
      BOWLINE_TRY(data.vocabulary.add(token.content, token.id));
    }
    kept.push_back(token);
  }
  BOWLINE_TRY_ASSIGN(data.added, AddedTokens::create(std::move(kept), data.normalizers));
  return {};
}

}  // namespace

Result<SharedData> build(const Description& d) {
  // GGUF does not have these parts.
  const auto in_part = [&](Status status, std::string_view part) {
    return d.file ? std::move(status).at(format("While reading the {} of the tokenizer.", part))
                  : status;
  };
  auto data = std::make_shared<TokenizerData>();
  for (const steps::Normalizer& step : d.normalizers) {
    Result<Normalizer> made = make_normalizer(step);
    BOWLINE_TRY(in_part(made.status(), "normalizer"));
    data->normalizers.push_back(std::move(made).value());
  }
  for (const steps::PreTokenizer& step : d.pre_tokenizers) {
    BOWLINE_TRY(in_part(add_pre_tokenizer(step, data->pre_tokenizers), "pre-tokenizer"));
  }
  data->post_processors = d.post_processors;
  BOWLINE_TRY(in_part(make_decoders(d.decoders, data->decoders), "decoder"));
  if (is_byte_level(d)) {
    data->pre_tokenizers.pop_back();  // the model takes raw bytes
  }
  BOWLINE_TRY(in_part(make_model(d, *data), "model"));
  BOWLINE_TRY(add_tokens(d, *data));
  return SharedData(std::move(data));
}

}  // namespace bowline::text
