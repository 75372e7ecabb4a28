// Mistral: a Llama of which attention sees a window of tokens.
//
// Source  transformers, models/mistral/modeling_mistral.py.
#include "blocks/llama_family.h"

namespace bowline::import {
namespace {

Result<Built> build_mistral(const Source& source, const BuildOptions& options) {
  return build_decoder(source, options, [&](Weights& weights) -> Result<DecoderParts> {
    Fields config("The config", source.config);
    return declare_llama(weights, config, {.is_windowed = [](Fields&, int64_t) { return true; }});
  });
}

constexpr Architecture kMistralArchitectures[] = {{"mistral", build_mistral}};

}  // namespace

std::span<const Architecture> architectures_of_mistral() { return kMistralArchitectures; }

}  // namespace bowline::import
