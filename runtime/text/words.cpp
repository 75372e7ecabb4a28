// WordPiece, Unigram, whole words and bytes.
#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "text/byte_level.h"
#include "text/models.h"
#include "text/require.h"
#include "text/unicode.h"

namespace bowline::text {
namespace {

Status pieces_collide() {
  return Status(Code::bad_file, "The tokens of the vocabulary have too many hash collisions.");
}

}  // namespace

Result<WordPiece> WordPiece::create(const Vocabulary& vocabulary, const Options& options) {
  WordPiece out;
  out.options_ = options;
  const auto unknown = vocabulary.find(options.unknown);
  BOWLINE_REQUIRE_FILE(unknown.has_value(), "The unknown token \"{}\" is not in the vocabulary.",
                       escaped(options.unknown));
  out.unknown_ = *unknown;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view piece = vocabulary.piece(id);
    if (piece.empty()) {
      continue;
    }
    bool fits = out.begins_.insert(piece, id);
    if (piece.starts_with(options.prefix) && piece.size() > options.prefix.size()) {
      fits = out.goes_on_.insert(piece.substr(options.prefix.size()), id) && fits;
    }
    if (!fits) {
      return pieces_collide();
    }
  }
  return out;
}

Status WordPiece::encode(std::string_view word, Scratch&, std::vector<Token>& out) const {
  const size_t first = out.size();
  size_t at = count_of(word) > options_.longest ? SIZE_MAX : 0;
  while (at < word.size()) {
    Token best{-1, at, at};
    (at == 0 ? begins_ : goes_on_).match(word.substr(at), [&](size_t length, int32_t id) {
      best = {id, at, at + length};
    });
    if (best.id < 0) {
      at = SIZE_MAX;
      break;
    }
    out.push_back(best);
    at = best.end;
  }
  if (at == SIZE_MAX) {
    out.resize(first);
    out.push_back({unknown_, 0, word.size()});
  }
  return {};
}

Result<Unigram> Unigram::create(const Vocabulary& vocabulary, std::vector<double> scores,
                                const Options& options) {
  Unigram out;
  out.options_ = options;
  out.scores_ = std::move(scores);
  BOWLINE_REQUIRE_FILE(options.unknown < 0 || vocabulary.has(options.unknown),
                       "The unknown token has id {}, which is not in the vocabulary.",
                       options.unknown);
  double least = INFINITY;
  for (size_t i = 0; i < out.scores_.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view piece = vocabulary.piece(id);
    if (out.scores_[i] == -INFINITY) {
      continue;
    }
    BOWLINE_REQUIRE_FILE(std::isfinite(out.scores_[i]), "The score of token \"{}\" is not finite.",
                         escaped(piece.substr(0, 100)));
    least = std::min(least, out.scores_[i]);
    if (!piece.empty() && (!out.pieces_.insert(piece, id) || out.ids_.insert(piece, id) == -1)) {
      return pieces_collide();
    }
  }
  constexpr double kPenalty = 10;
  out.unknown_score_ = least - kPenalty;
  for (size_t byte = 0; byte < 256; ++byte) {
    out.bytes_[byte] = options.byte_fallback ? vocabulary.find(byte_piece(byte)).value_or(-1) : -1;
  }
  return out;
}

Status Unigram::encode(std::string_view word, Scratch&, std::vector<Token>& out) const {
  struct Best {
    double score = 0;
    size_t begin = SIZE_MAX;
    int32_t id = -1;
  };
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
      BOWLINE_REQUIRE_FILE(options_.unknown >= 0,
                           "The vocabulary has no token for \"{}\" and no unknown token.",
                           escaped(word.substr(at, n)));
      offer(at, at + n, unknown_score_ + here, options_.unknown);
    }
    at += n;
  }
  const size_t first = out.size();
  for (size_t end = word.size(); end > 0;) {
    const Best& b = best[end];
    const bool joins = b.id == options_.unknown && out.size() > first && out.back().id == b.id;
    if (joins) {
      out.back().begin = b.begin;
    } else {
      out.push_back({b.id, b.begin, end});
    }
    end = b.begin;
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  const std::vector<Token> parts(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  out.resize(first);
  for (const Token& t : parts) {
    BOWLINE_TRY(add(word, t.begin, t.end, t.id, out));
  }
  return {};
}

// Unknown text may be a token once it is joined; otherwise its bytes are tokens.
Status Unigram::add(std::string_view word, size_t begin, size_t end, int32_t id,
                    std::vector<Token>& out) const {
  if (id != options_.unknown) {
    out.push_back({id, begin, end});
    return {};
  }
  const std::string_view part = word.substr(begin, end - begin);
  if (const auto piece = ids_.find(part)) {
    out.push_back({*piece, begin, end});
    return {};
  }
  if (options_.byte_fallback &&
      std::ranges::all_of(part, [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; })) {
    for (const char c : part) {
      out.push_back({bytes_[static_cast<uint8_t>(c)], begin, end});
    }
    return {};
  }
  out.push_back({id, begin, end});
  return {};
}

Result<WordLevel> WordLevel::create(const Vocabulary& vocabulary, std::string_view unknown) {
  WordLevel out;
  out.unknown_ = vocabulary.find(unknown).value_or(-1);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!vocabulary.piece(id).empty() && out.words_.insert(vocabulary.piece(id), id) == -1) {
      return pieces_collide();
    }
  }
  return out;
}

Status WordLevel::encode(std::string_view word, Scratch&, std::vector<Token>& out) const {
  const int32_t id = words_.find(word).value_or(unknown_);
  BOWLINE_REQUIRE_FILE(id >= 0, "The vocabulary has no token for \"{}\" and no unknown token.",
                       escaped(word.substr(0, 100)));
  out.push_back({id, 0, word.size()});
  return {};
}

Status Bytes::encode(std::string_view word, Scratch&, std::vector<Token>& out) const {
  for (size_t i = 0; i < word.size(); ++i) {
    out.push_back({static_cast<uint8_t>(word[i]), i, i + 1});
  }
  return {};
}

}  // namespace bowline::text
