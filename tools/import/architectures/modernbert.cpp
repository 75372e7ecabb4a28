// ModernBERT: an encoder with rotary positions, gated feed-forward parts and norms before each
// part. Most layers see only a window of the text, and have another rotation.
//
// Source  transformers, models/modernbert/modeling_modernbert.py; Warner et al., "Smarter, Better,
// Faster, Longer", 2024.
#include "base/escape.h"
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

// Older configs do not list the types of layers.
bool is_windowed_layer(Fields& config, int64_t layer) {
  return layer % config.integer_or("global_attn_every_n_layers", 1, 4096, 3) != 0;
}

Result<DecoderParts> declare_modernbert(Weights& weights, Fields& config) {
  const bool attention_bias = config.boolean_or("attention_bias", false);
  const bool norm_bias = config.boolean_or("norm_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.names = {.embedding = "model.embeddings.tok_embeddings",
                                                .embedding_norm = "model.embeddings.norm",
                                                .attention_norm = "attn_norm",
                                                .qkv = "attn.Wqkv",
                                                .out = "attn.Wo",
                                                .feed_forward_norm = "mlp_norm",
                                                .gate_up = "mlp.Wi",
                                                .down = "mlp.Wo",
                                                .final_norm = "model.final_norm",
                                                .head = "decoder"},
                                      .is_bidirectional = true,
                                      .first_without_norm = true,
                                      .qkv_bias = attention_bias,
                                      .out_bias = attention_bias,
                                      .feed_forward_bias = config.boolean_or("mlp_bias", false),
                                      .fused_qkv = true,
                                      .fused_gate_up = true,
                                      .layer_norms = true,
                                      .norm_bias = norm_bias,
                                      .kv_heads_key = {},
                                      .eps_key = "norm_eps",
                                      .eps = 1e-5,
                                      .head_dim_key = {},
                                      .activation_key = "hidden_activation",
                                      .activation = "gelu",
                                      .embedding_dropout_key = "embedding_dropout",
                                      .rotary = {.theta = 160000,
                                                 .older_theta_key = "global_rope_theta",
                                                 .local_theta_key = "local_rope_theta"},
                                      .is_windowed = is_windowed_layer,
                                      .window_key = "local_attention",
                                      .window = 128}));
  const std::string pooling = config.text_or("classifier_pooling", "cls");
  p.head_form = {.pooling = pooling == "cls" ? "cls" : "mean",
                 .projection = {.name = "head.dense",
                                .has_bias = config.boolean_or("classifier_bias", false),
                                .norm = "head.norm",
                                .has_norm_bias = norm_bias,
                                .eps = config.number_or("norm_eps", 1e-12, 1, 1e-5),
                                .of_tags = true}};
  p.head_activation = config.text_or("classifier_activation", "gelu");
  p.pooled_dropout = config.number_or("classifier_dropout", 0, 0.999, 0);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(pooling == "cls" || pooling == "mean", Code::unsupported,
                       "The config has the \"classifier_pooling\" {}. Supported: cls, mean.",
                       listed_name(pooling));
  return p;
}

// Source  transformers, configuration_modernbert.py.
constexpr KeyRule kModernbertKeys[] = {
    {"num_hidden_layers hidden_size num_attention_heads intermediate_size max_position_embeddings "
     "norm_eps norm_bias attention_bias mlp_bias hidden_activation layer_types local_attention "
     "global_attn_every_n_layers rope_parameters rope_scaling global_rope_theta local_rope_theta "
     "embedding_dropout classifier_pooling classifier_activation classifier_bias "
     "classifier_dropout"},
    // --dropout cannot drop values inside of a part.
    {"attention_dropout mlp_dropout", KeyUse::fixed, "[0, null]"},
    {"position_embedding_type", KeyUse::fixed, R"(["absolute", "sans_pos", null])"},
    // Of other tasks, of the initial values, and of how transformers computes.
    {"decoder_bias sparse_prediction sparse_pred_ignore_index tie_word_embeddings "
     "deterministic_flash_attn reference_compile repad_logits_with_grad layer_norm_eps "
     "initializer_cutoff_factor cls_token_id sep_token_id gradient_checkpointing",
     KeyUse::harmless},
};

constexpr Architecture kModernbertArchitectures[] = {
    {"modernbert", build_text_encoder<declare_modernbert>, {{kModernbertKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_modernbert() { return kModernbertArchitectures; }

}  // namespace bowline::import
