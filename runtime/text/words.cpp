// WordPiece, Unigram and whole words.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/escape.h"
#include "text/byte_level.h"
#include "text/models.h"
#include "text/require.h"
#include "text/unicode.h"

namespace bowline::text {
namespace {

constexpr std::string_view kPiecesCollide =
    "The tokens of the vocabulary have too many hash collisions.";

class UnigramModel {
 public:
  static Result<TokenModel> create(const Vocabulary& vocabulary, const steps::Unigram& step,
                                   std::vector<double> scores) {
    UnigramModel out;
    out.unknown_ = step.unk_id ? static_cast<int32_t>(*step.unk_id) : -1;
    BOWLINE_REQUIRE_FILE(out.unknown_ < 0 || vocabulary.has(out.unknown_),
                         "The unknown token has id {}, which is not in the vocabulary.",
                         out.unknown_);
    double least = INFINITY;
    for (size_t i = 0; i < scores.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      const std::string_view piece = vocabulary.piece(id);
      if (scores[i] == -INFINITY) {
        continue;
      }
      BOWLINE_REQUIRE_FILE(std::isfinite(scores[i]), "The score of token \"{}\" is not finite.",
                           escaped(piece.substr(0, 100)));
      least = std::min(least, scores[i]);
      BOWLINE_REQUIRE_FILE(piece.empty() || out.pieces_.insert(piece, id), kPiecesCollide);
    }
    constexpr double kPenalty = 10;
    out.unknown_score_ = least - kPenalty;
    out.scores_ = std::move(scores);
    for (size_t byte = 0; byte < 256; ++byte) {
      out.bytes_[byte] = step.byte_fallback ? vocabulary.find(byte_piece(byte)).value_or(-1) : -1;
    }
    return TokenModel(
        [model = std::move(out)](std::string_view word, Scratch&, std::vector<Token>& tokens) {
          return model.encode(word, tokens);
        });
  }

 private:
  struct Best {
    double score = 0;
    size_t begin = SIZE_MAX;
    int32_t id = -1;
  };

  Status encode(std::string_view word, std::vector<Token>& out) const {
    std::vector<Best> best(word.size() + 1);
    const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
      if (best[end].begin == SIZE_MAX || score > best[end].score) {
        best[end] = {score, begin, id};
      }
    };
    for (size_t at = 0; at < word.size();) {
      const size_t n = length_of(word[at]);
      const double here = best[at].score;
      bool one = false;
      pieces_.match(word.substr(at), [&](size_t length, int32_t id) {
        offer(at, at + length, scores_[static_cast<size_t>(id)] + here, id);
        one = one || length == n;
      });
      if (!one) {
        BOWLINE_REQUIRE_FILE(unknown_ >= 0,
                             "The vocabulary has no token for \"{}\" and no unknown token.",
                             escaped(word.substr(at, n)));
        offer(at, at + n, unknown_score_ + here, unknown_);
      }
      at += n;
    }
    std::vector<Token> parts;  // from the end of the word
    for (size_t end = word.size(); end > 0; end = parts.back().begin) {
      const Best& b = best[end];
      if (b.id == unknown_ && !parts.empty() && parts.back().id == b.id) {
        parts.back().begin = b.begin;
      } else {
        parts.push_back({b.id, b.begin, end});
      }
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      add(word, *part, out);
    }
    return {};
  }

  // Unknown text may be a token once it is joined; otherwise its bytes are tokens.
  void add(std::string_view word, Token part, std::vector<Token>& out) const {
    if (part.id == unknown_) {
      const std::string_view text = word.substr(part.begin, part.end - part.begin);
      bool is_token = false;
      pieces_.match(text, [&](size_t n, int32_t id) {
        is_token = n == text.size();
        part.id = is_token ? id : unknown_;
      });
      if (!is_token && std::ranges::all_of(text, [&](char c) { return byte(c) >= 0; })) {
        for (const char c : text) {
          out.push_back({byte(c), part.begin, part.end});
        }
        return;
      }
    }
    out.push_back(part);
  }

  int32_t byte(char c) const { return bytes_[static_cast<uint8_t>(c)]; }

  ByteTrie pieces_;
  std::vector<double> scores_;
  int32_t unknown_ = -1;
  double unknown_score_ = 0;
  std::array<int32_t, 256> bytes_{};  // byte -> token; -1: none
};

}  // namespace

Result<TokenModel> make_word_piece(const Vocabulary& vocabulary, const steps::WordPiece& step) {
  const auto unknown = vocabulary.find(step.unk_token);
  BOWLINE_REQUIRE_FILE(unknown, "The unknown token \"{}\" is not in the vocabulary.",
                       escaped(step.unk_token));
  const std::string_view prefix = step.continuing_subword_prefix;
  ByteTrie begins, continuations;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view piece = vocabulary.piece(id);
    const bool continues = piece.starts_with(prefix) && piece.size() > prefix.size();
    BOWLINE_REQUIRE_FILE((piece.empty() || begins.insert(piece, id)) &&
                             (!continues || continuations.insert(piece.substr(prefix.size()), id)),
                         kPiecesCollide);
  }
  return TokenModel([begins = std::move(begins), continuations = std::move(continuations),
                     unknown = *unknown, longest = step.max_input_chars_per_word](
                        std::string_view word, Scratch&, std::vector<Token>& out) -> Status {
    const size_t first = out.size();
    bool known = count_of(word) <= longest;
    for (size_t at = 0; known && at < word.size();) {
      Token best{-1, at, at};
      (at == 0 ? begins : continuations).match(word.substr(at), [&](size_t length, int32_t id) {
        best = {id, at, at + length};
      });
      known = best.id >= 0;
      out.push_back(best);
      at = best.end;
    }
    if (!known) {
      out.resize(first);
      out.push_back({unknown, 0, word.size()});
    }
    return {};
  });
}

Result<TokenModel> make_unigram(const Vocabulary& vocabulary, const steps::Unigram& step,
                                std::vector<double> scores) {
  return UnigramModel::create(vocabulary, step, std::move(scores));
}

TokenModel make_word_level(const Vocabulary& vocabulary, const steps::WordLevel& step) {
  return [words = vocabulary, unknown = vocabulary.find(step.unk_token).value_or(-1)](
             std::string_view word, Scratch&, std::vector<Token>& out) -> Status {
    const int32_t id = words.find(word).value_or(unknown);
    BOWLINE_REQUIRE_FILE(id >= 0, "The vocabulary has no token for \"{}\" and no unknown token.",
                         escaped(word.substr(0, 100)));
    out.push_back({id, 0, word.size()});
    return {};
  };
}

}  // namespace bowline::text
