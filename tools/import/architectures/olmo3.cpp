// OLMo 3: an OLMo 2 with a sliding window in three of four layers. Scalings of the rotation change
// only layers without a window.
//
// Source  transformers, models/olmo3/modeling_olmo3.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_olmo3(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(
      weights, config,
      {.qkv_bias = bias,
       .out_bias = bias,
       .query_norms = DecoderForm::QueryNorms::all,
       .norms = DecoderForm::Norms::behind,
       .eps = 1e-5,
       .rotary = {.theta = 5e5, .local_theta_key = "rope_theta", .local_theta = 5e5},
       .is_windowed = [](Fields&, int64_t i) { return (i + 1) % 4 != 0; }});
}

// Source  transformers, configuration_olmo3.py.
constexpr KeyRule kOlmo3Keys[] = {{"attention_bias sliding_window layer_types"}};

constexpr Architecture kOlmo3Architectures[] = {
    {"olmo3", build_decoder<declare_olmo3>, {{kOlmo3Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_olmo3() { return kOlmo3Architectures; }

}  // namespace bowline::import
