#pragma once

#include "gguf/file.h"
#include "gguf/terms.h"

namespace bowline::gguf {

// Errors  unsupported: a key changes what the model computes, and is not read; a key of the model
//         or of its tokenizer is not known.
Status check_file_keys(const File& file, const Terms& terms);

}  // namespace bowline::gguf
