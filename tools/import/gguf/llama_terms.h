// GGUF terms that all Llama-like decoders share.
#pragma once

#include "gguf/terms.h"

namespace bowline::gguf {

// Terms without biases, with all rows in the order of Hugging Face. `more`: additional tensors of
// this architecture.
Terms llama_terms(std::string_view architecture, std::string_view class_name,
                  std::initializer_list<TensorTerm> more);

}  // namespace bowline::gguf
