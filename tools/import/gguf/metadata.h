// Settings in the terms of Hugging Face from the metadata of a GGUF file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gguf/file.h"
#include "gguf/terms.h"

namespace bowline::gguf {

// Errors  bad_file: a key is absent or of another kind. unsupported: layers that differ, a scaling
//         of RoPE that is not known.
Result<nlohmann::json> config_of(const File& file, const Terms& terms);

// The scaling of Llama 3 whose divisors of the frequencies are these, as rope_scaling. `base` and
// `dim` are those of RoPE. Errors unsupported: there is none.
Result<nlohmann::json> llama3_scaling(std::span<const float> divisors, double base, int64_t dim);
// The divisors of such a scaling. Source  "Llama 3 Model Card", Meta, 2024, and transformers'
// _compute_llama3_parameters.
std::vector<float> llama3_divisors(const nlohmann::json& scaling, double base, int64_t dim);

}  // namespace bowline::gguf
