#include "tasks/tagged_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tasks/tag_scores.h"

namespace bowline::command {
namespace {

// Decodes the code point that begins at a byte of well-formed UTF-8.
char32_t point_at(std::string_view text, size_t at) {
  const size_t length = utf8_length(text.substr(at));
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  char32_t point = length <= 1 ? byte(0) : byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  return point;
}

// True for characters that words consist of. Each character of Chinese and Japanese, and each
// punctuation mark, is a word of its own.
bool joins_words(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  constexpr std::pair<char32_t, char32_t> kAlone[] = {
      {0x80, 0xBF},        // controls, spaces, signs and punctuation of Latin-1
      {0x2000, 0x206F},    // General Punctuation
      {0x2E80, 0x312F},    // CJK radicals, symbols and punctuation, Hiragana, Katakana, Bopomofo
      {0x3190, 0x4DBF},    // Kanbun to CJK Extension A
      {0x4E00, 0x9FFF},    // CJK Unified Ideographs
      {0xF900, 0xFAFF},    // CJK Compatibility Ideographs
      {0xFE30, 0xFE6F},    // CJK Compatibility Forms, Small Form Variants
      {0xFF00, 0xFFEF},    // Halfwidth and Fullwidth Forms
      {0x20000, 0x3FFFF},  // CJK extensions B and later
  };
  return std::ranges::none_of(
      kAlone, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

// True if the characters before and behind a byte belong to one word.
bool joins_at(std::string_view text, size_t at) {
  size_t before = at - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) {
    --before;
  }
  return joins_words(point_at(text, before)) && joins_words(point_at(text, at));
}

// Counts the code points before a byte: those bytes that do not continue one.
size_t points_before(std::string_view text, size_t end) {
  return static_cast<size_t>(std::ranges::count_if(
      text.substr(0, end), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

nlohmann::json span_json(std::string_view text, const std::string& label, text::Offset at,
                         double score) {
  return {{"label", label},
          {"start", points_before(text, at.begin)},
          {"end", points_before(text, at.end)},
          {"text", text.substr(at.begin, at.end - at.begin)},
          {"score", score}};
}

}  // namespace

std::vector<TextWord> words_of(std::string_view text, const text::Encoding& encoding) {
  std::vector<TextWord> out;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    text::Offset at = encoding.offsets[i];
    if (encoding.special[i] != 0 || at.begin == at.end) {
      continue;
    }
    at.begin += text[at.begin] == ' ' ? 1 : 0;
    const uint32_t end = out.empty() ? 0 : out.back().offset.end;
    const bool is_adjacent = !out.empty() && at.begin == end && at.begin < text.size();
    // Several tokens can share a character.
    const bool continues = at.begin < end || (is_adjacent && joins_at(text, at.begin));
    if (continues) {
      out.back().offset.end = std::max(out.back().offset.end, at.end);
    } else if (at.begin < at.end) {
      out.push_back({i, at});
    }
  }
  return out;
}

nlohmann::json tagged_json(std::string_view text, std::span<const TextWord> words,
                           std::span<const std::vector<double>> probabilities,
                           std::span<const std::string> tags, TagScheme scheme) {
  std::vector<std::string> given;
  std::vector<double> scores;
  for (const std::vector<double>& p : probabilities) {
    const auto best = std::ranges::max_element(p);
    given.push_back(tags[static_cast<size_t>(best - p.begin())]);
    scores.push_back(*best);
  }
  nlohmann::json list = nlohmann::json::array();
  if (scheme == TagScheme::words) {
    for (size_t i = 0; i < words.size(); ++i) {
      list.push_back(span_json(text, given[i], words[i].offset, scores[i]));
    }
    return {{"text", text}, {"words", std::move(list)}};
  }
  for (const Entity& entity : entities_of(given)) {
    double sum = 0;
    for (size_t i = entity.begin; i < entity.end; ++i) {
      sum += scores[i];
    }
    list.push_back(span_json(text, entity.kind,
                             {words[entity.begin].offset.begin, words[entity.end - 1].offset.end},
                             sum / static_cast<double>(entity.end - entity.begin)));
  }
  return {{"text", text}, {"entities", std::move(list)}};
}

}  // namespace bowline::command
