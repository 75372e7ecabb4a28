#include "tasks/tagged_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tasks/tag_scores.h"

namespace bowline::command {
namespace {

// A letter or digit of ASCII, or any other code point than those of ASCII.
bool is_letter(char c) {
  return static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') ||
         (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
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
    const bool continues = !out.empty() && at.begin <= out.back().offset.end && at.begin > 0 &&
                           at.begin < text.size() && is_letter(text[at.begin - 1]) &&
                           is_letter(text[at.begin]);
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
