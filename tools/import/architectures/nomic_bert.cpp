// Nomic BERT: an encoder with rotary positions, gated feed-forward parts, and layer norms of sums.
//
// Source  transformers, models/nomic_bert/modeling_nomic_bert.py; Nussbaum et al., "Nomic Embed",
// 2024.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

constexpr DecoderForm kNomicForm = {
    .names = {.prefix = {},
              .embedding = "embeddings.word_embeddings",
              .types = "embeddings.token_type_embeddings",
              .embedding_norm = "emb_ln",
              .layers = "encoder.layers",
              .qkv = "attn.Wqkv",
              .out = "attn.out_proj",
              .attention_out_norm = "norm1",
              .gate = "mlp.fc12",
              .up = "mlp.fc11",
              .down = "mlp.fc2",
              .feed_forward_out_norm = "norm2",
              .final_norm = {}},
    .is_bidirectional = true,
    .norms = DecoderForm::Norms::sums,
    .fused_qkv = true,
    .layer_norms = true,
    .eps_key = "layer_norm_eps",
    .eps = 1e-12,
    .embedding_dropout_key = "hidden_dropout_prob",
    .residual_dropout_key = "hidden_dropout_prob",
    .rotary = {.theta = 1000},
};

// The config of the program that trained the published models.
constexpr DecoderForm older_form() {
  DecoderForm form = kNomicForm;
  form.layers_key = "n_layer";
  form.width_key = "n_embd";
  form.heads_key = "n_head";
  form.inner_key = "n_inner";
  form.kv_heads_key = {};
  // Longer texts have another rotation.
  form.context_key = "max_trained_positions";
  form.context = 2048;
  form.eps_key = "layer_norm_epsilon";
  form.head_dim_key = {};
  form.embedding_dropout_key = "embd_pdrop";
  form.residual_dropout_key = "resid_pdrop";
  form.rotary.theta = 10000;
  form.rotary.older_theta_key = "rotary_emb_base";
  return form;
}
constexpr DecoderForm kOlderForm = older_form();

Result<DecoderParts> declare_nomic(Weights& weights, Fields& config) {
  weights.strip_prefix("nomic_bert.");
  const DecoderForm& form = config.has("n_embd") ? kOlderForm : kNomicForm;
  BOWLINE_TRY_ASSIGN(DecoderParts p, declare_decoder(weights, config, form));
  weights.drop("cls.*", "it belongs to a head for another task");
  p.head_form = {.pooling = "cls", .projection = {"pooler.dense", "tanh"}};
  p.head_activation = "tanh";
  p.pooled_dropout = config.number_or("classifier_dropout", 0, 0.999, p.residual_dropout);
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_nomic_bert.py.
constexpr KeyRule kNomicKeys[] = {
    {"num_hidden_layers hidden_size num_attention_heads intermediate_size max_position_embeddings "
     "layer_norm_eps hidden_act hidden_dropout_prob classifier_dropout head_dim rope_parameters "
     "rope_scaling rope_theta"},
    // Of GGUF files. All heads have their own keys, or the tensors do not fit.
    {"num_key_value_heads"},
    {"attention_probs_dropout_prob", KeyUse::harmless},  // --dropout ignores it
    // Number of table rows, of which all tokens have the first; and the head of another task.
    {"type_vocab_size tie_word_embeddings", KeyUse::harmless},
};

// Source  configs of nomic-embed-text-v1 and v1.5.
constexpr KeyRule kOlderKeys[] = {
    {"n_layer n_embd n_head n_inner max_trained_positions layer_norm_epsilon embd_pdrop "
     "resid_pdrop rotary_emb_base"},
    {"activation_function", KeyUse::fixed, R"(["swiglu"])"},
    {"qkv_proj_bias mlp_fc1_bias mlp_fc2_bias prenorm causal use_rms_norm parallel_block "
     "parallel_block_tied_norm rotary_emb_interleaved scale_attn_by_inverse_layer_idx",
     KeyUse::fixed, "[false]"},
    {"scale_attn_weights", KeyUse::fixed, "[true]"},
    {"rotary_emb_fraction", KeyUse::fixed, "[1]"},
    {"rotary_emb_scale_base", KeyUse::fixed, "[null]"},
    // Of longer texts than the model supports, of the initial values, and of how the other program
    // computes.
    {"n_positions rotary_scaling_factor attn_pdrop dense_seq_output fused_bias_fc "
     "fused_dropout_add_ln last_layer_subset pad_vocab_size_multiple reorder_and_upcast_attn "
     "summary_activation summary_first_dropout summary_proj_to_labels summary_type "
     "summary_use_proj use_flash_attn use_xentropy",
     KeyUse::harmless},
};

constexpr Architecture kNomicArchitectures[] = {
    {"nomic_bert", build_text_encoder<declare_nomic>, {{kNomicKeys, kOlderKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_nomic_bert() { return kNomicArchitectures; }

}  // namespace bowline::import
