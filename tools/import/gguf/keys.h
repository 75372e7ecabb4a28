#pragma once

#include "gguf/file.h"
#include "gguf/terms.h"

namespace bowline::gguf {

// Checks that every key of the file is supported.
// Errors  unsupported: a key changes the result of the model and is not supported, or a key of the
//         model or its tokenizer is unknown.
Status check_file_keys(const File& file, const Terms& terms);

}  // namespace bowline::gguf
