// Command R7B: a Command R whose layers have a sliding window and rotary positions, or neither.
//
// Source  transformers, models/cohere2/modeling_cohere2.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_cohere2(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p, declare_decoder(weights, config,
                                                     {.qkv_bias = bias,
                                                      .out_bias = bias,
                                                      .is_parallel = true,
                                                      .layer_norms = true,
                                                      .norm_bias = false,
                                                      .eps_key = "layer_norm_eps",
                                                      .eps = 1e-5,
                                                      .is_tied = true,
                                                      .rotary = {.interleaved = true},
                                                      .rotated = DecoderForm::Rotated::windowed,
                                                      .is_windowed = is_before_nth<4>}));
  p.logit_divisor =
      weights.constant("logit_divisor", 1 / config.number_or("logit_scale", 1e-6, 1e6, 0.0625));
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_cohere2.py.
constexpr KeyRule kCohere2Keys[] = {
    {"attention_bias layer_norm_eps logit_scale sliding_window layer_types "
     "sliding_window_pattern"},
    {"rms_norm_eps", KeyUse::harmless},
    {"cache_implementation", KeyUse::harmless},
};

constexpr Architecture kCohere2Architectures[] = {
    {"cohere2", build_decoder<declare_cohere2>, {{kCohere2Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_cohere2() { return kCohere2Architectures; }

}  // namespace bowline::import
