// XGLM: a decoder with sinusoidal positions, layer norms and biases.
//
// Source  transformers, models/xglm/modeling_xglm.py.
#include <cmath>

#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

// The table begins with two rows that no token has.
constexpr int64_t kFirstPosition = 2;

// The first half of a row has sines, the second half cosines.
std::vector<float> sinusoids(int64_t rows, int64_t width) {
  const int64_t half = width / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(half - 1, 1));
  std::vector<float> table(static_cast<size_t>(rows * width));
  for (int64_t row = 0; row < rows; ++row) {
    float* const to = table.data() + row * width;
    for (int64_t i = 0; i < half; ++i) {
      // transformers computes the angle as f32, which matters at high positions.
      const float frequency = std::exp(static_cast<float>(i) * static_cast<float>(-step));
      const float angle = static_cast<float>(row) * frequency;
      to[i] = std::sin(angle);
      to[half + i] = std::cos(angle);
    }
  }
  return table;
}

Result<DecoderParts> declare_xglm(Weights& weights, Fields& config) {
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.names = {.attention_norm = "self_attn_layer_norm",
                                                .out = "self_attn.out_proj",
                                                .feed_forward_norm = "final_layer_norm",
                                                .up = "fc1",
                                                .down = "fc2",
                                                .final_norm = "model.layer_norm"},
                                      .qkv_bias = true,
                                      .out_bias = true,
                                      .feed_forward_bias = true,
                                      .gated = false,
                                      .layer_norms = true,
                                      .first_position = kFirstPosition,
                                      .make_positions = sinusoids,
                                      .layers_key = "num_layers",
                                      .width_key = "d_model",
                                      .heads_key = "attention_heads",
                                      .kv_heads_key = {},
                                      .inner_key = "ffn_dim",
                                      .eps_key = {},
                                      .eps = 1e-5,
                                      .head_dim_key = {},
                                      .activation_key = "activation_function",
                                      .activation = "gelu",
                                      .is_tied = true,
                                      .embedding_dropout_key = "dropout",
                                      .residual_dropout_key = "dropout",
                                      .embedding_dropout = 0.1,
                                      .residual_dropout = 0.1,
                                      .rotated = DecoderForm::Rotated::none}));
  if (config.boolean_or("scale_embedding", true)) {
    p.embedding_scale =
        weights.constant("embedding_scale", std::sqrt(static_cast<double>(p.sizes.width)));
  }
  weights.drop("model.embed_positions.weights", "it is computed from the config");
  return p;
}

// Source  transformers, configuration_xglm.py.
constexpr KeyRule kXglmKeys[] = {
    {"architectures", KeyUse::harmless},  // tells the kind of a head, if there is one
    {"num_layers d_model attention_heads ffn_dim max_position_embeddings activation_function "
     "dropout scale_embedding tie_word_embeddings"},
    {"layerdrop", KeyUse::fixed, "[0, null]"},
    {"add_cross_attention", KeyUse::fixed, "[false]"},
    // --dropout ignores the first two. The last ones are for a program that generates text.
    {"attention_dropout activation_dropout init_std decoder_start_token_id", KeyUse::harmless},
};

constexpr Architecture kXglmArchitectures[] = {
    {"xglm", build_decoder<declare_xglm>, {{kXglmKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_xglm() { return kXglmArchitectures; }

}  // namespace bowline::import
