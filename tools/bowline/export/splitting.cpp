#include "export/splitting.h"

#include <algorithm>

#include "export/tensors.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Of several names for one splitting the first is written.
constexpr Splitting kSplittings[] = {{"gpt-2", ""},
                                     {"gpt2", ""},
                                     {"roberta-bpe", ""},
                                     {"smollm", "", true},
                                     {"llama-bpe", kLlama3, false, true, true},
                                     {"llama3", kLlama3, false, true, true},
                                     {"qwen2", kQwen2, false, false, false, true},
                                     {"deepseek-r1-qwen", kQwen2}};

const Splitting* or_null(const Splitting* found) {
  return found == std::end(kSplittings) ? nullptr : found;
}

}  // namespace

std::vector<json> steps_of(const json& part, const char* list) {
  if (!part.is_object()) {
    return {};
  }
  const json& steps = value_at(part, list);
  return steps.is_array() ? steps.get<std::vector<json>>() : std::vector<json>{part};
}

const Splitting* find_splitting(std::string_view name) {
  return or_null(std::ranges::find(kSplittings, name, &Splitting::name));
}

const Splitting* splitting_of(const json& tokenizer) {
  std::vector<json> steps = steps_of(value_at(tokenizer, "pre_tokenizer"), "pretokenizers");
  if (steps.empty() || text_at(steps.back(), "type") != "ByteLevel" ||
      flag_at(steps.back(), "add_prefix_space", true)) {
    return nullptr;
  }
  const bool by_pattern = !flag_at(steps.back(), "use_regex", true);
  steps.pop_back();
  if (steps.size() > 1 || (steps.empty() && by_pattern)) {
    return nullptr;
  }
  const std::string type = steps.empty() ? "" : text_at(steps[0], "type");
  const bool digits = type == "Digits" && flag_at(steps[0], "individual_digits", false);
  const std::string pattern =
      type == "Split" ? text_at(value_at(steps[0], "pattern"), "Regex") : "";
  const std::vector<json> normalizers = steps_of(value_at(tokenizer, "normalizer"), "normalizers");
  const bool nfc = !normalizers.empty() && text_at(normalizers[0], "type") == "NFC";
  if ((!steps.empty() && (by_pattern ? pattern.empty() : !digits)) ||
      normalizers.size() != (nfc ? 1 : 0)) {
    return nullptr;
  }
  return or_null(std::ranges::find_if(kSplittings, [&](const Splitting& s) {
    return s.digits == digits && s.pattern == pattern && s.nfc == nfc;
  }));
}

json normalizer_of(const Splitting& splitting) {
  return splitting.nfc ? json{{"type", "NFC"}} : json();
}

json pre_tokenizer_of(const Splitting& splitting) {
  json bytes = {{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", true},
                {"use_regex", splitting.pattern.empty()}};
  if (!splitting.digits && splitting.pattern.empty()) {
    return bytes;
  }
  json first = splitting.digits ? json{{"type", "Digits"}, {"individual_digits", true}}
                                : json{{"type", "Split"},
                                       {"pattern", {{"Regex", splitting.pattern}}},
                                       {"behavior", "Isolated"},
                                       {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers", json::array({std::move(first), std::move(bytes)})}};
}

}  // namespace bowline::command
