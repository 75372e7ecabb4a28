// Keys of GGUF from settings of Hugging Face.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bowline.h"
#include "gguf/terms.h"
#include "gguf/write.h"

namespace bowline::command {

// general.* and the keys of the architecture. Errors  bad_argument: a setting is absent, of another
// kind, or asks for what GGUF has no key for.
Status add_settings(const nlohmann::json& config, const gguf::Terms& terms, gguf::Metadata& to);
// Divisors of the frequencies of RoPE, the tensor rope_freqs.weight; empty: there are none.
Result<std::vector<float>> rope_divisors(const nlohmann::json& config);

// tokenizer.*, from either form of the asset, with the template of chats. `vocabulary`: rows of the
// table. `notes` gets a sentence where the
// file has no tokenizer, with the reason, or one that is not quite the same. Errors  bad_file: the
// asset is damaged.
Status add_tokenizer(const Model& model, int64_t vocabulary, gguf::Metadata& to,
                     std::vector<std::string>& notes);

}  // namespace bowline::command
