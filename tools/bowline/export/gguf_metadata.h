// Converts Hugging Face settings and tokenizers to GGUF keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bowline.h"
#include "gguf/terms.h"
#include "gguf/write.h"

namespace bowline::command {

// Adds general.architecture and the keys of the architecture.
// Errors  bad_argument: a setting is missing, has another type, or has no GGUF key.
Status add_settings(const nlohmann::json& config, const gguf::Terms& terms, gguf::Metadata& to);
// Returns the RoPE frequency divisors, for the tensor rope_freqs.weight. Empty: the model has none.
Result<std::vector<float>> rope_divisors(const nlohmann::json& config);

// Adds tokenizer.* and the chat template. The tokenizer of the model can be a GGUF tokenizer or a
// tokenizer.json. `vocabulary`: rows of the embedding table. Adds a sentence to `notes` if the file
// gets no tokenizer, with the reason, or a tokenizer that differs from the model's.
// Errors  bad_file: the tokenizer of the model is damaged.
Status add_tokenizer(const Model& model, int64_t vocabulary, gguf::Metadata& to,
                     std::vector<std::string>& notes);

}  // namespace bowline::command
