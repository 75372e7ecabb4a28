#include "text/added_tokens.h"

#include <algorithm>

#include "text/require.h"
#include "text/unicode.h"

namespace bowline::text {
namespace {

constexpr size_t kMostTokens = 1 << 20;

}  // namespace

Result<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens,
                                        const std::vector<Normalizer>& normalizers) {
  BOWLINE_REQUIRE_FILE(tokens.size() <= kMostTokens,
                       "The tokenizer has {} added tokens, more than {}.", tokens.size(),
                       kMostTokens);
  AddedTokens out;
  // If texts are equal, the special token wins.
  std::ranges::stable_sort(
      tokens, [](const AddedToken& a, const AddedToken& b) { return a.special && !b.special; });
  for (const AddedToken& token : tokens) {
    AlignedText content;
    for (size_t at = 0; at < token.content.size();) {
      content.append(next_of(token.content, at), {});
    }
    for (size_t i = 0; token.normalized && i < normalizers.size(); ++i) {
      BOWLINE_TRY(normalizers[i](content));
    }
    if (content.text.empty()) {
      continue;
    }
    Places& places = out.places_[token.normalized ? 1 : 0];
    places.any = true;
    BOWLINE_REQUIRE_FILE(places.trie.insert(content.text, token.id),
                         "The added tokens have too many hash collisions.");
    places.begins[static_cast<uint8_t>(content.text[0])] = true;
  }
  std::ranges::stable_sort(tokens, {}, &AddedToken::id);
  out.tokens_ = std::move(tokens);
  return out;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = std::ranges::lower_bound(tokens_, id, {}, &AddedToken::id);
  return found != tokens_.end() && found->id == id ? &*found : nullptr;
}

Status AddedTokens::split(Pieces& pieces, bool normalized, bool special) const {
  const Places& places = places_[normalized ? 1 : 0];
  return !places.any ? Status() : pieces.split([&](std::string_view text, std::vector<Piece>& out) {
    return split(text, places, special, out);
  });
}

// Finds the leftmost token, the longest at each position.
Status AddedTokens::split(std::string_view text, const Places& places, bool special,
                          std::vector<Piece>& out) const {
  size_t done = 0;  // end of the last token, with its white space
  for (size_t at = 0; at < text.size();) {
    int32_t id = -1;
    size_t length = 0;
    if (places.begins[static_cast<uint8_t>(text[at])]) {
      places.trie.match(text.substr(at), [&](size_t n, int32_t found) {
        length = n;
        id = found;
      });
    }
    if (id < 0) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at = at + length;
    const AddedToken& token = *find(id);
    size_t before = begin;
    size_t behind = end;
    const bool within =
        token.single_word && ((begin > 0 && is_word(previous_of(text, before))) ||
                              (end < text.size() && is_word(next_of(text, behind))));
    if (within || (token.special && !special)) {
      continue;
    }
    for (size_t i = begin; token.lstrip && i > 0 && is_white_space(previous_of(text, i));) {
      begin = i;
    }
    for (size_t i = end; token.rstrip && i < text.size() && is_white_space(next_of(text, i));) {
      end = i;
    }
    begin = std::max(begin, done);
    end = std::max(end, begin);
    out.push_back({done, begin});
    out.push_back({begin, end, id});
    done = end;
  }
  out.push_back({done, text.size()});
  return {};
}

}  // namespace bowline::text
