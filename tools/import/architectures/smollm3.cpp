// SmolLM3: a Llama in which some layers do not rotate keys and queries.
//
// Source  transformers, models/smollm3/modeling_smollm3.py.
#include <algorithm>

#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

// "no_rope_layers" has a 1 for each layer with rotary positions.
bool is_rotary(Fields& config, int64_t layer) {
  const std::vector<double> flags = config.numbers("no_rope_layers", 0, 1);
  if (flags.empty()) {
    return (layer + 1) % config.integer_or("no_rope_layer_interval", 1, kMostSize, 4) != 0;
  }
  return static_cast<size_t>(layer) < flags.size() && flags[static_cast<size_t>(layer)] != 0;
}

Result<DecoderParts> declare_smollm3(Weights& weights, Fields& config) {
  const auto layers = static_cast<size_t>(config.integer("num_hidden_layers", 1, 4096));
  const std::vector<double> flags = config.numbers("no_rope_layers", 0, 1);
  const std::vector<std::string> types = config.texts("layer_types");
  const bool bias = config.boolean_or("attention_bias", false);
  const bool uses_window = config.boolean_or("use_sliding_window", false);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(flags.empty() || flags.size() >= layers, Code::bad_file,
                       "{} has {} layers, but \"no_rope_layers\" has {} entries.", config.what(),
                       layers, flags.size());
  // transformers hides keys of such layers, but with another mask in each implementation.
  BOWLINE_REQUIRE_CODE(uses_window || std::ranges::count(types, "sliding_attention") == 0,
                       Code::unsupported,
                       "{} has \"layer_types\" with sliding windows, which \"use_sliding_window\" "
                       "disables. Remove the key that is wrong.",
                       config.what());
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = config.boolean_or("mlp_bias", false),
                          .is_tied = true,
                          .rotary = {.theta = 2e6},
                          .is_rotary = is_rotary,
                          .is_windowed = [](Fields& of, int64_t i) { return !is_rotary(of, i); },
                          .uses_window = false,
                          .window = 0});
}

// Source  transformers, configuration_smollm3.py.
constexpr KeyRule kSmollm3Keys[] = {
    {"attention_bias mlp_bias no_rope_layers no_rope_layer_interval use_sliding_window "
     "sliding_window layer_types"},
};

constexpr Architecture kSmollm3Architectures[] = {
    {"smollm3", build_decoder<declare_smollm3>, {{kSmollm3Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_smollm3() { return kSmollm3Architectures; }

}  // namespace bowline::import
