#include "base/pattern.h"

#include <algorithm>

namespace bowline {
namespace {

constexpr size_t kMostAlternatives = 256;
constexpr std::string_view kNumber = "{}";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The alternatives of the group that begins at `open`, without its braces.
Result<std::string_view> group_at(std::string_view pattern, size_t open) {
  const size_t close = pattern.find_first_of("{}", open + 1);
  BOWLINE_REQUIRE(close != pattern.npos && pattern[close] == '}',
                  "The pattern \"{}\" has an unmatched brace.", pattern);
  return pattern.substr(open + 1, close - open - 1);
}

}  // namespace

Result<std::vector<std::string>> alternatives(std::string_view pattern) {
  std::vector<std::string> out = {""};
  for (size_t at = 0; at < pattern.size();) {
    const size_t open = std::min(pattern.find_first_of("{}", at), pattern.size());
    std::string_view piece = pattern.substr(at, open - at);
    if (piece.empty() && pattern.substr(open).starts_with(kNumber)) {
      piece = kNumber;
    }
    if (!piece.empty()) {
      std::ranges::for_each(out, [&](std::string& text) { text += piece; });
      at += piece.size();
      continue;
    }
    BOWLINE_REQUIRE(pattern[open] == '{', "The pattern \"{}\" has an unmatched brace.", pattern);
    BOWLINE_TRY_ASSIGN(std::string_view group, group_at(pattern, open));
    at = open + group.size() + 2;
    std::vector<std::string> longer;
    for (bool more = true; more;) {
      const size_t comma = std::min(group.find(','), group.size());
      for (const std::string& text : out) {
        longer.push_back(text + std::string(group.substr(0, comma)));
      }
      BOWLINE_REQUIRE(longer.size() <= kMostAlternatives,
                      "The pattern \"{}\" expands to more than {} patterns.", pattern,
                      kMostAlternatives);
      more = comma < group.size();
      group.remove_prefix(more ? comma + 1 : 0);
    }
    out = std::move(longer);
  }
  return out;
}

std::optional<Digits> number_in(std::string_view pattern, std::string_view name) {
  const size_t split = pattern.find(kNumber);
  if (split == pattern.npos) {
    return std::nullopt;
  }
  for (auto at = name.begin();;) {
    const auto begin = std::find_if(at, name.end(), is_digit);
    if (begin == name.end()) {
      return std::nullopt;
    }
    at = std::find_if_not(begin, name.end(), is_digit);
    const Digits digits{static_cast<size_t>(begin - name.begin()),
                        static_cast<size_t>(at - name.begin())};
    if (matches(pattern.substr(0, split), name.substr(0, digits.begin)) &&
        matches(pattern.substr(split + kNumber.size()), name.substr(digits.end))) {
      return digits;
    }
  }
}

bool matches_any(std::span<const std::string> alternatives, std::string_view name) {
  return std::ranges::any_of(alternatives, [&](const std::string& a) { return matches(a, name); });
}

bool matches(std::string_view pattern, std::string_view name) {
  const auto is_rest = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last "*" ...
  size_t kept = 0;                       // ... and the last tried position of the text after it
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      kept = n;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      for (++n; n < name.size() && is_rest(name[n]); ++n) {
      }
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++kept;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace bowline
