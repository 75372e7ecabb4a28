// Mistral: a Llama with sliding-window attention.
//
// Source  transformers, models/mistral/modeling_mistral.py.
#include <algorithm>

#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

// Either all layers of a Mistral have the window, or none. Other keys are rejected.
Status check_windows(Fields& config) {
  const bool windowed = !config.is_null("sliding_window");
  const std::string_view type = windowed ? "sliding_attention" : "full_attention";
  const std::vector<std::string> types = config.texts("layer_types");
  const bool used = config.boolean_or("use_sliding_window", windowed);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(std::ranges::all_of(types, [&](const auto& t) { return t == type; }),
                       Code::unsupported,
                       "The config has \"layer_types\", but all layers of a Mistral with this "
                       "\"sliding_window\" must have the type {}.",
                       type);
  BOWLINE_REQUIRE_CODE(
      used == windowed, Code::unsupported,
      "The config has \"use_sliding_window\": {}, which contradicts \"sliding_window\". "
      "A null \"sliding_window\" disables the window.",
      used);
  return {};
}

Result<DecoderParts> declare_mistral_model(Weights& weights, Fields& config) {
  BOWLINE_TRY(check_windows(config));
  return declare_decoder(weights, config, {.is_windowed = is_every_layer});
}

// Source  transformers, configuration_mistral.py.
constexpr KeyRule kMistralKeys[] = {
    {"sliding_window layer_types use_sliding_window"},
    {"attention_bias", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kMistralArchitectures[] = {
    {"mistral", build_decoder<declare_mistral_model>, {{kMistralKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_mistral() { return kMistralArchitectures; }

}  // namespace bowline::import
