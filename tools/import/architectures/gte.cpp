// GTE: an encoder with rotary positions, gated feed-forward parts, biases, and layer norms of sums.
//
// Source  transformers, models/gte/modeling_gte.py; Zhang et al., "mGTE", 2024.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gte(Weights& weights, Fields& config) {
  weights.strip_prefix("gte.");
  weights.strip_prefix("new.");
  const bool has_types = config.integer_or("type_vocab_size", 0, kMostSize, 1) != 0;
  const std::string_view types =
      has_types ? std::string_view("embeddings.token_type_embeddings") : std::string_view();
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.names = {.prefix = {},
                                                .embedding = "embeddings.word_embeddings",
                                                .types = types,
                                                .embedding_norm = "embeddings.LayerNorm",
                                                .layers = "encoder.layer",
                                                .qkv = "attention.qkv_proj",
                                                .out = "attention.o_proj",
                                                .attention_out_norm = "attn_ln",
                                                .gate_up = "mlp.up_gate_proj",
                                                .down = "mlp.down_proj",
                                                .feed_forward_out_norm = "mlp_ln",
                                                .final_norm = {}},
                                      .is_bidirectional = true,
                                      .qkv_bias = true,
                                      .out_bias = true,
                                      .down_bias = true,
                                      .norms = DecoderForm::Norms::sums,
                                      .fused_qkv = true,
                                      .fused_gate_up = true,
                                      .up_before_gate = true,
                                      .layer_norms = true,
                                      .kv_heads_key = {},
                                      .context = 8192,
                                      .eps_key = "layer_norm_eps",
                                      .eps = 1e-12,
                                      .head_dim_key = {},
                                      .activation = "gelu",
                                      .embedding_dropout_key = "hidden_dropout_prob",
                                      .residual_dropout_key = "hidden_dropout_prob",
                                      .embedding_dropout = 0.1,
                                      .residual_dropout = 0.1,
                                      .rotary = {.theta = 160000}}));
  weights.drop("lm_head.*", "it belongs to a head for another task");
  p.inner_dropout = p.residual_dropout;
  p.head_form = {.pooling = "cls", .projection = {"pooler.dense", "tanh"}};
  p.head_activation = "tanh";
  p.pooled_dropout = config.number_or("classifier_dropout", 0, 0.999, p.residual_dropout);
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_gte.py.
constexpr KeyRule kGteKeys[] = {
    {"num_hidden_layers hidden_size num_attention_heads intermediate_size max_position_embeddings "
     "layer_norm_eps hidden_act hidden_dropout_prob classifier_dropout rope_parameters "
     "rope_scaling rope_theta"},
    {"type_vocab_size", KeyUse::harmless},               // the tensors have it, too
    {"attention_probs_dropout_prob", KeyUse::harmless},  // --dropout ignores it
    {"tie_word_embeddings", KeyUse::harmless},           // about the head of another task
};

constexpr Architecture kGteArchitectures[] = {
    {"gte", build_text_encoder<declare_gte>, {{kGteKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gte() { return kGteArchitectures; }

}  // namespace bowline::import
