// Checks the metadata of a GGUF file and converts it to the settings of config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gguf/file.h"
#include "gguf/terms.h"

namespace bowline::gguf {

// Checks that every key of the file is supported.
// Errors  unsupported: a key changes the result of the model and is not supported, or a key of the
//         model or its tokenizer is unknown.
Status check_file_keys(const File& file, const Terms& terms);

// Errors  bad_file: a key is missing or has another type. unsupported: layers have different
//         values, or the RoPE scaling is not supported.
Result<nlohmann::json> config_of(const File& file, const Terms& terms);

// Returns the Llama 3 scaling with these frequency divisors, as rope_scaling. `base` and `dim`: of
// RoPE.
// Errors  unsupported: no Llama 3 scaling has these divisors.
Result<nlohmann::json> llama3_scaling(std::span<const float> divisors, double base, int64_t dim);
// Returns the frequency divisors of a Llama 3 scaling.
// Source  "Llama 3 Model Card", Meta, 2024, and transformers' _compute_llama3_parameters.
std::vector<float> llama3_divisors(const nlohmann::json& scaling, double base, int64_t dim);

}  // namespace bowline::gguf
