// GPT-Neo: a GPT-2 with a sliding window in some layers. Scores are not divided by the root of
// head_dim.
//
// Source  transformers, models/gpt_neo/modeling_gpt_neo.py.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

// The kind of each layer: "global", or "local" with a window. "attention_types" is a list of kinds
// and of how often they repeat: [[["global", "local"], 12]].
std::vector<std::string> layer_kinds(Fields& config) {
  std::vector<std::string> out;
  const nlohmann::json* const all = config.list("attention_types");
  const nlohmann::json otherwise = {{{"global", "local"}, 12}};
  for (const nlohmann::json& part : all == nullptr ? otherwise : *all) {
    const bool fits = part.is_array() && part.size() == 2 && part[0].is_array() &&
                      part[1].is_number_unsigned() && part[1] <= 4096 &&
                      std::ranges::all_of(part[0], [](const auto& kind) {
                        return kind == "global" || kind == "local";
                      });
    if (!fits) {
      config.fail(
          fmt::format("{}: \"attention_types\" has {}, not kinds of layers (global, local) "
                      "and how often they repeat.",
                      config.what(), shown(part)));
      return {};
    }
    for (int64_t i = 0; i < part[1]; ++i) {
      out.insert(out.end(), part[0].begin(), part[0].end());
    }
  }
  const std::vector<std::string> stated = config.texts("attention_layers");
  if (!stated.empty() && stated != out) {
    config.fail(
        fmt::format("{} has different layers in \"attention_layers\" and "
                    "\"attention_types\".",
                    config.what()));
  }
  return out;
}

bool is_local(Fields& config, int64_t layer) {
  const std::vector<std::string> kinds = layer_kinds(config);
  if (std::ssize(kinds) != config.integer("num_layers", 1, 4096)) {
    config.fail(
        fmt::format("{}: \"attention_types\" describes {} layers.", config.what(), kinds.size()));
    return false;
  }
  return kinds[static_cast<size_t>(layer)] == "local";
}

Result<DecoderParts> declare_gpt_neo(Weights& weights, Fields& config) {
  weights.drop("*attn.attention.bias", "the causal mask is computed");
  weights.drop("*attn.attention.masked_bias", "the causal mask is computed");
  DecoderForm form = kGptForm;
  form.names.q = "attn.attention.q_proj";
  form.names.k = "attn.attention.k_proj";
  form.names.v = "attn.attention.v_proj";
  form.names.out = "attn.attention.out_proj";
  form.qkv_bias = form.fused_qkv = false;
  form.layers_key = "num_layers";
  form.width_key = "hidden_size";
  form.heads_key = "num_heads";
  form.inner_key = "intermediate_size";
  form.context_key = "max_position_embeddings";
  form.embedding_dropout_key = "embed_dropout";
  form.residual_dropout_key = "resid_dropout";
  form.embedding_dropout = form.residual_dropout = 0;
  form.is_windowed = is_local;
  form.window_key = "window_size";
  form.window = 256;
  BOWLINE_TRY_ASSIGN(DecoderParts p, declare_decoder(weights, config, form));
  p.attention_scale = 1;
  return p;
}

// Source  transformers, configuration_gpt_neo.py.
constexpr KeyRule kGptNeoKeys[] = {
    {"architectures", KeyUse::harmless},  // tells the kind of a head, if there is one
    {"num_layers hidden_size num_heads intermediate_size max_position_embeddings attention_types "
     "attention_layers window_size layer_norm_epsilon activation_function embed_dropout "
     "resid_dropout tie_word_embeddings"},
    {"attention_dropout", KeyUse::harmless},  // --dropout ignores it
    {"is_causal", KeyUse::fixed, "[true]"},
    {"classifier_dropout summary_type summary_use_proj summary_activation summary_proj_to_labels "
     "summary_first_dropout",
     KeyUse::harmless},
};

constexpr Architecture kGptNeoArchitectures[] = {
    {"gpt_neo", build_decoder<declare_gpt_neo>, {{kGptNeoKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gpt_neo() { return kGptNeoArchitectures; }

}  // namespace bowline::import
