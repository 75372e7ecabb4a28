#include <algorithm>
#include <array>
#include <functional>

#include "base/escape.h"
#include "text/byte_level.h"
#include "text/models.h"
#include "text/require.h"

namespace bowline::text {
namespace {

// Words up to this length are merged by scanning all pairs, longer words with a queue.
constexpr size_t kShort = 48;
constexpr uint32_t kNoRank = UINT32_MAX;

// Start of the last code point.
size_t last_begin(std::string_view text) {
  size_t at = text.size();
  (void)previous_of(text, at);
  return at;
}

constexpr std::string_view kMergesCollide =
    "The merges of the tokenizer have too many hash collisions.";

class BpeModel {
 public:
  static Result<BpeModel> create(const Vocabulary& vocabulary, const steps::Bpe& step,
                                 bool byte_level, const std::vector<MergeRule>& rules) {
    BpeModel out;
    out.step_ = step;
    out.byte_level_ = byte_level;
    out.prefix_ = step.continuing_subword_prefix.value_or("");
    out.suffix_ = step.end_of_word_suffix.value_or("");
    const std::string unknown = step.unk_token.value_or("");
    if (!unknown.empty()) {
      const auto id = vocabulary.find(unknown);
      BOWLINE_REQUIRE_FILE(id, "The unknown token \"{}\" is not in the vocabulary.",
                           escaped(unknown));
      out.unknown_ = *id;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string letter;
      append(letter, kByteLetters[byte]);
      out.bytes_[byte] = vocabulary.find(byte_level ? letter : byte_piece(byte)).value_or(-1);
    }
    for (const MergeRule& r : rules) {
      BOWLINE_REQUIRE_FILE(
          out.merges_.insert(static_cast<uint32_t>(r.left), static_cast<uint32_t>(r.right), r.rank,
                             static_cast<uint32_t>(r.merged)),
          kMergesCollide);
    }
    // Ids of single code points.
    const size_t longest = 1 + count_of(out.prefix_) + count_of(out.suffix_);
    for (size_t id = 0; id < vocabulary.size() && !byte_level; ++id) {
      const auto number = static_cast<int32_t>(id);
      const std::string_view piece = vocabulary.piece(number);
      BOWLINE_REQUIRE_FILE(
          piece.empty() || count_of(piece) > longest || out.initial_.insert(piece, number) != -1,
          kMergesCollide);
    }
    // In files that write spaces as U+2581, a text without other spaces is one word. If no merge
    // joins the text before a U+2581 with it, words are cut there.
    const bool cuts = !byte_level && !out.has_ends() && !step.ignore_merges &&
                      vocabulary.find(kSpaceMark) &&
                      std::ranges::all_of(rules, [&](const MergeRule& r) {
                        return !vocabulary.piece(r.right).starts_with(kSpaceMark) ||
                               vocabulary.piece(r.left).ends_with(kSpaceMark);
                      });
    out.cut_before_ = cuts ? kSpaceMark : std::string_view();
    out.find_whole(vocabulary);
    return out;
  }

  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const {
    if (cut_before_.empty()) {
      return encode_part(word, true, true, 0, scratch, out);
    }
    size_t begin = 0;
    while (begin < word.size()) {
      // the next mark after another letter
      size_t end = begin;
      while (word.substr(end).starts_with(cut_before_)) {
        end += cut_before_.size();
      }
      end = std::min(word.find(cut_before_, end), word.size());
      BOWLINE_TRY(encode_part(word.substr(begin, end - begin), begin == 0, end == word.size(),
                              begin, scratch, out));
      begin = end;
    }
    return {};
  }

 private:
  bool has_ends() const { return !prefix_.empty() || !suffix_.empty(); }

  // Finds the tokens whose own text encodes to just that token. encode() finds them at once. The
  // cost equals encoding the vocabulary.
  void find_whole(const Vocabulary& v) {
    if (has_ends()) {
      return;
    }
    Scratch scratch;
    std::vector<Token> tokens;
    for (size_t id = 0; id < v.size(); ++id) {
      const auto number = static_cast<int32_t>(id);
      std::string_view piece = v.piece(number);
      std::optional<std::string> bytes;
      if (byte_level_) {
        bytes = bytes_of(piece);
        piece = bytes ? std::string_view(*bytes) : std::string_view();
      }
      if (piece.empty()) {
        continue;
      }
      tokens.clear();
      const bool whole =
          step_.ignore_merges || (encode_part(piece, true, true, 0, scratch, tokens).ok() &&
                                  tokens.size() == 1 && tokens[0].id == number);
      if (whole) {
        (void)whole_.insert(piece, number);  // on a collision the token is merged like others
      }
    }
  }

  Status encode_part(std::string_view word, bool first, bool last, size_t begin, Scratch& s,
                     std::vector<Token>& out) const {
    if (const auto id = whole_.find(word)) {
      out.push_back({*id, begin, begin + word.size()});
      return {};
    }
    s.symbols.clear();
    BOWLINE_TRY(add_symbols(word, first, last, s));
    if (s.symbols.size() <= kShort) {
      merge_short(s);
    } else {
      merge_long(s);
    }
    for (const Scratch::Symbol& symbol : s.symbols) {
      out.push_back({symbol.id, begin + symbol.begin, begin + symbol.end});
    }
    return {};
  }

  Status add_symbols(std::string_view word, bool first, bool last, Scratch& s) const {
    // Symbols are contiguous. As in the package `tokenizers`, the unknown token is added late:
    // before the next text that has a token, and at the end. Byte tokens in between are therefore
    // placed before it. With fuse_unknown, unknown text on both sides of byte tokens becomes one
    // unknown token.
    size_t end = 0;
    const auto add = [&](int32_t id, size_t bytes) {
      s.symbols.push_back({id, static_cast<uint32_t>(end), static_cast<uint32_t>(end + bytes)});
      end += bytes;
    };
    size_t waiting = 0;  // bytes that the unknown token covers
    const auto add_unknown = [&] {
      if (waiting != 0) {
        add(unknown_, waiting);
      }
      waiting = 0;
    };
    const size_t last_code_point = byte_level_ || word.empty() ? 0 : last_begin(word);
    for (size_t at = 0; at < word.size();) {
      const size_t n = byte_level_ ? 1 : length_of(word[at]);
      std::optional<int32_t> id;
      if (byte_level_) {
        const int32_t piece = bytes_[static_cast<uint8_t>(word[at])];
        id = piece >= 0 ? std::optional(piece) : std::nullopt;
      } else if (!has_ends()) {
        id = initial_.find(word.substr(at, n));
      } else {
        s.text = (first && at == 0) ? "" : prefix_;
        s.text.append(word, at, n).append(last && at == last_code_point ? suffix_ : "");
        id = initial_.find(s.text);
      }
      if (id) {
        add_unknown();
        add(*id, n);
      } else if (step_.byte_fallback && std::ranges::all_of(word.substr(at, n), [&](char c) {
                   return bytes_[static_cast<uint8_t>(c)] >= 0;
                 })) {
        for (size_t i = at; i < at + n; ++i) {
          add(bytes_[static_cast<uint8_t>(word[i])], 1);
        }
      } else {
        BOWLINE_REQUIRE_FILE(unknown_ >= 0,
                             "The vocabulary has no token for \"{}\" and no unknown token.",
                             escaped(word.substr(at, n)));
        if (!step_.fuse_unk) {
          add_unknown();
        }
        waiting += n;
      }
      at += n;
    }
    add_unknown();
    return {};
  }

  const PairTable::Entry* merge_of(const Scratch::Symbol& a, const Scratch::Symbol& b) const {
    return merges_.find(static_cast<uint32_t>(a.id), static_cast<uint32_t>(b.id));
  }

  void merge_short(Scratch& s) const {
    auto& symbols = s.symbols;
    const auto rank_of = [&](size_t i) {
      const PairTable::Entry* e = merge_of(symbols[i], symbols[i + 1]);
      return e == nullptr ? kNoRank : e->first;
    };
    s.ranks.assign(symbols.size(), kNoRank);
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      s.ranks[i] = rank_of(i);
    }
    while (symbols.size() > 1) {
      const auto least = std::min_element(s.ranks.begin(), s.ranks.end());
      if (*least == kNoRank) {
        break;
      }
      const auto i = static_cast<size_t>(least - s.ranks.begin());
      const PairTable::Entry* e = merge_of(symbols[i], symbols[i + 1]);
      symbols[i].id = static_cast<int32_t>(e->second);
      symbols[i].end = symbols[i + 1].end;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      s.ranks.erase(s.ranks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      s.ranks[i] = i + 1 < symbols.size() ? rank_of(i) : kNoRank;
      if (i > 0) {
        s.ranks[i - 1] = rank_of(i - 1);
      }
    }
  }

  void merge_long(Scratch& s) const {
    auto& symbols = s.symbols;
    auto& queue = s.queue;
    queue.clear();
    const auto count = static_cast<int32_t>(symbols.size());
    const auto merge_at = [&](int32_t i) -> const PairTable::Entry* {
      const auto& left = symbols[static_cast<size_t>(i)];
      return left.after < 0 ? nullptr : merge_of(left, symbols[static_cast<size_t>(left.after)]);
    };
    for (int32_t i = 0; i < count; ++i) {
      auto& symbol = symbols[static_cast<size_t>(i)];
      symbol.before = i - 1;
      symbol.after = i + 1 < count ? i + 1 : -1;
    }
    const auto push = [&](int32_t i) {
      if (const PairTable::Entry* e = i < 0 ? nullptr : merge_at(i)) {
        queue.push_back({e->first, i, static_cast<int32_t>(e->second)});
        std::push_heap(queue.begin(), queue.end(), std::greater<>());
      }
    };
    for (int32_t i = 0; i < count; ++i) {
      push(i);
    }
    while (!queue.empty()) {
      std::pop_heap(queue.begin(), queue.end(), std::greater<>());
      const Scratch::Merge next = queue.back();
      queue.pop_back();
      auto& left = symbols[static_cast<size_t>(next.at)];
      const PairTable::Entry* e = left.id < 0 ? nullptr : merge_at(next.at);
      if (e == nullptr || static_cast<int32_t>(e->second) != next.id) {
        continue;  // one of the two was merged meanwhile
      }
      auto& right = symbols[static_cast<size_t>(left.after)];
      left.id = next.id;
      left.end = right.end;
      left.after = right.after;
      right.id = -1;
      if (left.after >= 0) {
        symbols[static_cast<size_t>(left.after)].before = next.at;
      }
      push(left.before);
      push(next.at);
    }
    std::erase_if(symbols, [](const Scratch::Symbol& symbol) { return symbol.id < 0; });
  }

  steps::Bpe step_;
  bool byte_level_ = false;
  std::string prefix_;                // of tokens that do not start a word
  std::string suffix_;                // of tokens that end a word
  PairTable merges_;                  // (left, right) -> (rank, merged)
  TextTable initial_;                 // ids of code points, with prefix and suffix
  std::array<int32_t, 256> bytes_{};  // byte -> token for byte level or byte fallback; -1: none
  int32_t unknown_ = -1;
  TextTable whole_;         // words that become a single token
  std::string cut_before_;  // no merge crosses the start of this text, so words are cut there;
                            // empty: no such text
};

}  // namespace

Result<TokenModel> make_bpe(const Vocabulary& vocabulary, const steps::Bpe& step, bool byte_level,
                            const std::vector<MergeRule>& rules) {
  BOWLINE_TRY_ASSIGN(BpeModel made, BpeModel::create(vocabulary, step, byte_level, rules));
  return TokenModel(
      [model = std::move(made)](std::string_view word, Scratch& scratch, std::vector<Token>& out) {
        return model.encode(word, scratch, out);
      });
}

}  // namespace bowline::text
