#include "export/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::command {
namespace {

constexpr size_t kNone = SIZE_MAX;

// Finds tokens by their text.
class Index {
 public:
  explicit Index(const Rows& from) : from_(from) {
    for (size_t i = 0; i < from.pieces.size(); ++i) {
      if (takes_part(from.types[i])) {
        ids_.emplace(from.pieces[i], i);
      }
    }
  }
  std::optional<size_t> find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // Returns the positions that split a token into two tokens, the longest left part first.
  std::vector<size_t> cuts(size_t id) const {
    const std::string_view piece = from_.pieces[id];
    std::vector<size_t> out;
    for (size_t at = piece.size(); at-- > 1;) {
      const bool begins_letter = (static_cast<unsigned char>(piece[at]) & 0xC0) != 0x80;
      if (begins_letter && find(piece.substr(0, at)) && find(piece.substr(at))) {
        out.push_back(at);
      }
    }
    return out;
  }

 private:
  const Rows& from_;
  std::unordered_map<std::string_view, size_t> ids_;
};

// Returns the length in characters.
size_t length_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// The order of merges with the same score in transformers, the longest first
// (convert_slow_tokenizer.py).
std::pair<size_t, size_t> lengths(const Merge& merge) {
  return {length_of(merge.first), length_of(merge.second)};
}

std::string shown(const Rows& from, size_t id) {
  return listed_name(std::string_view(from.pieces[id]).substr(0, 100));
}

}  // namespace

Scores scores_of(const Rows& from, std::span<const Merge> merges) {
  const Index index(from);
  std::vector<size_t> made;  // the token of each merge
  std::vector<size_t> last(from.pieces.size(), 0), ways(from.pieces.size(), 0);
  for (const auto& [left, right] : merges) {
    const auto id = index.find(left + right);
    if (!id || !index.find(left) || !index.find(right)) {
      return {{},
              fmt::format("its merge of {} and {} names a token that takes part in no merge",
                          listed_name(left), listed_name(right))};
    }
    last[*id] = made.size();
    ++ways[*id];
    made.push_back(*id);
  }
  std::vector<float> scores(from.pieces.size(), 0);
  float next = 0;
  size_t end = kNone;  // last merge with the current score
  bool one_piece = true, by_length = true;
  for (size_t i = 0; i < made.size(); ++i) {
    const bool begins = end == kNone || i > end;
    next -= begins ? 1.0f : 0.0f;
    end = begins ? last[made[i]] : std::max(end, last[made[i]]);
    one_piece = begins || (one_piece && made[i] == made[i - 1]);
    by_length = begins || (by_length && lengths(merges[i]) <= lengths(merges[i - 1]));
    if (!one_piece && !by_length) {
      return {
          {},
          fmt::format("other merges come between those that make {}", shown(from, made[i - 1]))};
    }
    scores[made[i]] = next;
  }
  for (size_t id = 0; id < from.pieces.size(); ++id) {
    if (!takes_part(from.types[id])) {
      continue;
    }
    if (ways[id] != index.cuts(id).size()) {
      return {{},
              fmt::format("{} is made by {} merges, and {} pairs of tokens spell it",
                          shown(from, id), ways[id], index.cuts(id).size())};
    }
    scores[id] = ways[id] == 0 ? next - 1 : scores[id];
  }
  return {std::move(scores), ""};
}

std::vector<Merge> merges_of(const Rows& from, std::span<const double> scores) {
  const Index index(from);
  std::vector<std::pair<double, Merge>> scored;
  for (size_t id = 0; id < from.pieces.size(); ++id) {
    const std::string& piece = from.pieces[id];
    for (const size_t at : takes_part(from.types[id]) ? index.cuts(id) : std::vector<size_t>()) {
      scored.emplace_back(scores[id], Merge(piece.substr(0, at), piece.substr(at)));
    }
  }
  std::ranges::stable_sort(scored, std::greater<>(),
                           [](const auto& m) { return std::pair(m.first, lengths(m.second)); });
  std::vector<Merge> out;
  for (auto& [score, merge] : scored) {
    out.push_back(std::move(merge));
  }
  return out;
}

bool crosses_words(const Rows& rows) {
  for (size_t id = 0; id < rows.pieces.size(); ++id) {
    if (rows.types[id] == text::TokenType::normal &&
        rows.pieces[id].find(text::kSpaceMark, 1) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace bowline::command
