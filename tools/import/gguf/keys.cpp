// Tables of the supported keys of a file. The keys of an architecture that become settings are in
// its terms (KeyTerm).
//
// Source  gguf, constants.py (Keys); llama.cpp, llama-model.cpp and llama-vocab.cpp, for the keys
//         that an architecture reads.
#include "source/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/status.h"
#include "base/words.h"
#include "gguf/metadata.h"

namespace bowline::gguf {
namespace {

using import::KeyRule;
using import::KeyUse;
using nlohmann::json;

// After "<architecture>.".
constexpr KeyRule kModelKeys[] = {
    {"vocab_size"},
    {"attention.causal", KeyUse::fixed, "[true]"},
    {"attention.scale attention.sliding_window attention.max_alibi_bias attention.clamp_kqv "
     "attn_logit_softcapping final_logit_softcapping",
     KeyUse::fixed, "[0]"},
    {"logit_scale residual_scale embedding_scale", KeyUse::fixed, "[0, 1]"},
    {"expert_count expert_used_count", KeyUse::fixed, "[0]"},
    {"use_parallel_residual", KeyUse::fixed, "[false]"},
    {"tensor_data_layout", KeyUse::fixed, R"(["Meta AI original pth"])"},
    {"pooling_type"},
};
// For models with rotary queries and keys.
constexpr KeyRule kRotaryKeys[] = {
    {"attention.value_length rope.dimension_count rope.scale_linear rope.scaling.type "
     "rope.scaling.factor rope.scaling.original_context_length"},
    {"rope.scaling.finetuned", KeyUse::harmless},
    {"rope.scaling.attn_factor", KeyUse::fixed, "[0, 1]"},
};

constexpr KeyRule kTokenizerKeys[] = {
    {"tokenizer.chat_template"},
    {"tokenizer.chat_templates", KeyUse::harmless},  // names of further templates, used on request
    {"tokenizer.huggingface.json", KeyUse::harmless},
    {"tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.token_type"},
    {"tokenizer.ggml.token_type_count", KeyUse::harmless},  // same as the rows of the table
    {"tokenizer.ggml.scores tokenizer.ggml.merges tokenizer.ggml.bos_token_id "
     "tokenizer.ggml.eos_token_id tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id "
     "tokenizer.ggml.unknown_token_id tokenizer.ggml.seperator_token_id "
     "tokenizer.ggml.padding_token_id tokenizer.ggml.cls_token_id tokenizer.ggml.mask_token_id "
     "tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token"},
    {"tokenizer.ggml.add_sep_token", KeyUse::harmless},  // between two texts
    {"tokenizer.ggml.add_space_prefix tokenizer.ggml.remove_extra_whitespaces "
     "tokenizer.ggml.precompiled_charsmap tokenizer.ggml.normalizer.lowercase "
     "tokenizer.ggml.normalizer.strip_accents"},
    {"tokenizer.ggml.fim_pre_token_id tokenizer.ggml.fim_suf_token_id "
     "tokenizer.ggml.fim_mid_token_id tokenizer.ggml.fim_pad_token_id "
     "tokenizer.ggml.fim_rep_token_id tokenizer.ggml.fim_sep_token_id "
     "tokenizer.ggml.prefix_token_id tokenizer.ggml.suffix_token_id tokenizer.ggml.middle_token_id",
     KeyUse::harmless},
};

constexpr KeyRule kFileKeys[] = {
    {"general.type", KeyUse::fixed, R"(["model"])"},
    {"split.count", KeyUse::fixed, "[0, 1]"},
    {"split.no", KeyUse::fixed, "[0]"},
    {"split.tensors.count", KeyUse::harmless},
};

// Converts a value for a message; shows only the first values of an array.
json json_of(const Value& value) {
  if (const auto text = value.text()) {
    return std::string(*text);
  }
  if (const auto flag = value.boolean()) {
    return *flag;
  }
  constexpr uint64_t kMost = 16;
  json out = json::array();
  for (uint64_t i = 0; i < std::min(value.count, kMost); ++i) {
    const auto whole = value.integer(i);
    const auto real = value.real(i);
    out.push_back(whole ? json(*whole) : real ? json(*real) : json("..."));
  }
  return value.type == ValueType::array ? out : out[0];
}

}  // namespace

Status check_file_keys(const File& file, const Terms& terms) {
  constexpr std::string_view kFile = "The file";
  const std::string prefix = std::string(terms.architecture) + ".";
  const std::span<const KeyRule> rotary =
      terms.rotary ? std::span<const KeyRule>(kRotaryKeys) : std::span<const KeyRule>();
  for (const Entry& entry : file.entries) {
    const std::string_view key = entry.key;
    const json value = json_of(entry.value);
    if (key.starts_with(prefix)) {
      const std::string_view part = key.substr(prefix.size());
      const bool is_setting =
          std::ranges::find(terms.keys, part, &KeyTerm::gguf) != terms.keys.end();
      if (!is_setting) {
        BOWLINE_TRY(import::check_key(fmt::format("{}, a {},", kFile, terms.architecture), part,
                                      value, {terms.more_keys, rotary, kModelKeys}));
      }
    } else if (key.starts_with("tokenizer.") && !key.starts_with("tokenizer.chat_template.")) {
      BOWLINE_TRY(import::check_key(kFile, key, value, {kTokenizerKeys}));
    } else if (std::ranges::any_of(
                   kFileKeys, [&](const KeyRule& rule) { return is_one_of(rule.keys, key); })) {
      BOWLINE_TRY(import::check_key(kFile, key, value, {kFileKeys}));
    }  // other names are private keys of the file's author
  }
  return {};
}

}  // namespace bowline::gguf
