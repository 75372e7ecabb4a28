#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace bowline {
namespace {

constexpr size_t kMostSuggestions = 3;
constexpr size_t kFewNames = 8;

char folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Insertions, deletions and replacements of characters, without regard to case (Levenshtein,
// "Binary codes capable of correcting deletions, insertions, and reversals", 1966).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (folded(a[i - 1]) == folded(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// A word is near to a name with so many edits at most.
size_t largest_distance(std::string_view word) { return std::max<size_t>(2, word.size() / 3); }

// A word that is a part of a name ("Conv" of "Conv2d") is as near as one with two typing errors.
size_t nearness(std::string_view word, std::string_view name) {
  constexpr size_t kLeastPart = 3;
  const auto holds = [](std::string_view all, std::string_view part) {
    const auto same = [](char a, char b) { return folded(a) == folded(b); };
    return part.size() >= kLeastPart &&
           std::search(all.begin(), all.end(), part.begin(), part.end(), same) != all.end();
  };
  const size_t typed = edit_distance(word, name);
  return holds(name, word) || holds(word, name) ? std::min<size_t>(typed, 2) : typed;
}

std::string quoted_list(std::span<const std::string_view> names, std::string_view last) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    out += i == 0 ? "\"" : i + 1 == names.size() ? std::string(last) + "\"" : ", \"";
    out += std::string(names[i]) + "\"";
  }
  return out;
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> names) {
  const auto distance = [&](const std::string& name) { return edit_distance(word, name); };
  const auto best = std::ranges::min_element(names, {}, distance);
  return best != names.end() && distance(*best) <= largest_distance(word) ? *best : std::string();
}

std::string suggestion(std::string_view word, std::span<const std::string_view> names) {
  const size_t most = largest_distance(word);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string_view name : names) {
    if (const size_t d = nearness(word, name); d <= most) {
      near.emplace_back(d, name);
    }
  }
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string_view>::first);
  std::vector<std::string_view> chosen;
  for (size_t i = 0; i < std::min(near.size(), kMostSuggestions); ++i) {
    chosen.push_back(near[i].second);
  }
  if (!chosen.empty()) {
    return " Did you mean " + quoted_list(chosen, " or ") + "?";
  }
  if (names.empty() || names.size() > kFewNames) {
    return "";
  }
  return (names.size() == 1 ? " There is " : " There are ") + quoted_list(names, " and ") + ".";
}

}  // namespace bowline
