// OPT: a GPT-2 with products for queries, keys and values, and positions from row 2.
//
// Source  transformers, models/opt/modeling_opt.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_opt(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("enable_bias", true);
  const bool has_norm_weights = config.boolean_or("layer_norm_elementwise_affine", true);
  const bool lacks_final_norm = config.boolean_or("_remove_final_layer_norm", false);
  const int64_t width = config.integer("hidden_size", 1, kMostSize);
  const int64_t embedding = config.integer_or("word_embed_proj_dim", 1, kMostSize, width);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(embedding == width, Code::unsupported,
                       "The embeddings have {} channels (\"word_embed_proj_dim\"), but the hidden "
                       "rows have {}, which is not supported.",
                       embedding, width);
  BOWLINE_REQUIRE_CODE(!lacks_final_norm, Code::unsupported,
                       "The config removes the last norm (\"_remove_final_layer_norm\"), which is "
                       "not supported.");
  return declare_decoder(weights, config,
                         {.names = {.embedding = "model.decoder.embed_tokens",
                                    .positions = "model.decoder.embed_positions",
                                    .layers = "model.decoder.layers",
                                    .attention_norm = "self_attn_layer_norm",
                                    .out = "self_attn.out_proj",
                                    .feed_forward_norm = "final_layer_norm",
                                    .up = "fc1",
                                    .down = "fc2",
                                    .final_norm = "model.decoder.final_layer_norm"},
                          .qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = bias,
                          .gated = false,
                          .layer_norms = true,
                          .norm_weights = has_norm_weights,
                          .norm_bias = has_norm_weights,
                          .first_position = 2,
                          .kv_heads_key = {},
                          .inner_key = "ffn_dim",
                          .eps_key = {},
                          .eps = 1e-5,
                          .head_dim_key = {},
                          .activation_key = "activation_function",
                          .activation = "relu",
                          .is_tied = true,
                          .residual_dropout_key = "dropout",
                          .residual_dropout = 0.1,
                          .rotated = DecoderForm::Rotated::none});
}

// Source  transformers, configuration_opt.py.
constexpr KeyRule kOptKeys[] = {
    {"architectures", KeyUse::harmless},  // tells the kind of a head, if there is one
    {"num_hidden_layers hidden_size num_attention_heads ffn_dim max_position_embeddings "
     "activation_function dropout enable_bias layer_norm_elementwise_affine word_embed_proj_dim "
     "tie_word_embeddings"},
    {"do_layer_norm_before", KeyUse::fixed, "[true]"},
    {"layerdrop", KeyUse::fixed, "[0, null]"},
    {"is_causal", KeyUse::fixed, "[true]"},
    // --dropout ignores the first two. "prefix" is for a program that generates text.
    {"attention_dropout activation_dropout init_std prefix", KeyUse::harmless},
};

constexpr Architecture kOptArchitectures[] = {{"opt", build_decoder<declare_opt>, {{kOptKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_opt() { return kOptArchitectures; }

}  // namespace bowline::import
