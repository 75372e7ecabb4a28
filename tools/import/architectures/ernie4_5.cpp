// ERNIE 4.5, the dense models: a Llama that rotates neighbouring channels.
//
// Source  transformers, models/ernie4_5/modeling_ernie4_5.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_ernie4_5(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("use_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = bias,
                          .eps = 1e-5,
                          .head_dim = 128,
                          .is_tied = true,
                          .rotary = {.theta = 5e5, .interleaved = true}});
}

// Source  transformers, configuration_ernie4_5.py.
constexpr KeyRule kErnie45Keys[] = {
    {"use_bias"},
};

constexpr Architecture kErnie45Architectures[] = {
    {"ernie4_5", build_decoder<declare_ernie4_5>, {{kErnie45Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_ernie4_5() { return kErnie45Architectures; }

}  // namespace bowline::import
