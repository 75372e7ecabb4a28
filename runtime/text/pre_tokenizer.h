// Pre-tokenizers of tokenizer.json: split text into words. A token never crosses a word.
#pragma once

#include <functional>

#include "text/description.h"
#include "text/pieces.h"

namespace bowline::text {

using PreTokenizer = std::function<Status(Pieces&)>;

// Appends the parts of a step. The last part of ByteLevel rewrites bytes to letters.
// Errors  bad_file: a pattern is damaged, or a length is 0.
Status add_pre_tokenizer(const steps::PreTokenizer& step, std::vector<PreTokenizer>& out);

}  // namespace bowline::text
