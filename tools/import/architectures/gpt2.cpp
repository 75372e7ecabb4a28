// GPT-2: learned positions, layer norms with biases, and a fused product for queries, keys and
// values. Weights are [in, out].
//
// Source  transformers, models/gpt2/modeling_gpt2.py.
#include <fmt/format.h>

#include "base/status.h"
#include "blocks/decoder.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gpt2(Weights& weights, Fields& config) {
  DecoderParts p;
  DecoderSizes& s = p.sizes;
  s.layers = config.integer("n_layer", 1, 4096);
  s.width = config.integer("n_embd", 1, kMostSize);
  s.heads = config.integer("n_head", 1, 65536);
  s.inner = config.integer_or("n_inner", 1, kMostSize, 4 * s.width);
  s.vocabulary = config.integer("vocab_size", 1, kMostSize);
  s.context = config.integer("n_positions", 1, kMostSize);
  const double eps = config.number_or("layer_norm_epsilon", 1e-12, 1, 1e-5);
  const std::string activation = config.text_or("activation_function", "gelu_new");
  p.embedding_dropout = config.number_or("embd_pdrop", 0, 0.999, 0.1);
  p.residual_dropout = config.number_or("resid_pdrop", 0, 0.999, 0.1);
  const bool is_tied = config.boolean_or("tie_word_embeddings", true);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(s.width % s.heads == 0, Code::bad_file,
                       "The config has {} attention heads for a width of {}.", s.heads, s.width);
  s.kv_heads = s.heads;
  s.head_dim = s.width / s.heads;
  BOWLINE_TRY_ASSIGN(p.activation, activation_of(activation));
  weights.add_prefix("transformer.", "lm_head.");
  weights.drop("transformer.h.*.attn.bias", "the causal mask is computed");
  weights.drop("transformer.h.*.attn.masked_bias", "the causal mask is computed");

  const auto list = [&](const char* name, const char* part, std::vector<int64_t> shape) {
    return weights.list(fmt::format("transformer.h.{{}}.{}.{}", name, part), s.layers,
                        std::move(shape));
  };
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return Linear{list(name, "weight", {in, out}), list(name, "bias", {out}), true};
  };
  const auto norm = [&](const char* name) {
    return Norm{Norm::Kind::layer, list(name, "weight", {s.width}), list(name, "bias", {s.width}),
                eps};
  };
  p.embedding = weights.one("transformer.wte.weight", {s.vocabulary, s.width});
  p.positions = weights.one("transformer.wpe.weight", {s.context, s.width});
  p.attention_norm = norm("ln_1");
  p.qkv = linear("attn.c_attn", 3 * s.width, s.width);
  p.out = linear("attn.c_proj", s.width, s.width);
  p.feed_forward_norm = norm("ln_2");
  p.up = linear("mlp.c_fc", s.inner, s.width);
  p.down = linear("mlp.c_proj", s.width, s.inner);
  p.final_norm = {Norm::Kind::layer, weights.one("transformer.ln_f.weight", {s.width}),
                  weights.one("transformer.ln_f.bias", {s.width}), eps};
  p.head = is_tied ? weights.tied("lm_head.weight", p.embedding, "transformer.wte.weight",
                                  "\"tie_word_embeddings\" of the config")
                   : weights.one("lm_head.weight", {s.vocabulary, s.width});
  return p;
}

// Source  transformers, configuration_gpt2.py.
constexpr KeyRule kGpt2Keys[] = {
    {"architectures", KeyUse::harmless},  // a decoder has only the language model head
    {"n_layer n_embd n_head n_inner n_positions layer_norm_epsilon activation_function embd_pdrop "
     "resid_pdrop"},
    {"attn_pdrop", KeyUse::harmless},
    {"tie_word_embeddings"},
    {"scale_attn_weights", KeyUse::fixed, "[true]"},
    {"scale_attn_by_inverse_layer_idx", KeyUse::fixed, "[false, null]"},
    {"reorder_and_upcast_attn", KeyUse::harmless},
    {"is_causal", KeyUse::fixed, "[true]"},
    {"n_ctx n_special predict_special_tokens summary_type summary_use_proj summary_activation "
     "summary_proj_to_labels summary_first_dropout summary_last_dropout",
     KeyUse::harmless},
};

constexpr Architecture kGpt2Architectures[] = {
    {"gpt2", build_decoder<declare_gpt2>, {{kGpt2Keys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gpt2() { return kGpt2Architectures; }

}  // namespace bowline::import
