// Text for models: tokenizers, chat formats and generation, over bowline.h. The optional target bowline::text.
//
// This header is its public interface and its manual. Errors, threads and globals are as bowline.h says. What is read comes from
// outside: a file that is damaged, or made to do harm, gives bad_file.
#pragma once

#include "bowline.h"

namespace bowline::text {

// -------------------------------------------------------------------------------------- tokenizers

// ------------------------------------------------------------------------------------ chat formats

// -------------------------------------------------------------------------------------- generation

}  // namespace bowline::text
