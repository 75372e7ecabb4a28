// What decoders that are built as Llama is share.
#pragma once

#include "gguf/terms.h"

namespace bowline::gguf {

// Without biases, all rows in the order of Hugging Face; `more` are the tensors that this one has
// besides.
Terms llama_terms(std::string_view architecture, std::string_view class_name,
                  std::initializer_list<TensorTerm> more);

}  // namespace bowline::gguf
