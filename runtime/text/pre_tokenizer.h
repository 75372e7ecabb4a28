// Pre-tokenizers of tokenizer.json: split text into words. A token never crosses a word.
#pragma once

#include <functional>

#include "text/pieces.h"

namespace bowline::text {

using PreTokenizer = std::function<Status(Pieces&)>;

// The use of the matches of a splitting pattern.
enum class Matches : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

PreTokenizer split(Pattern pattern, Matches matches, bool invert = false);
PreTokenizer fixed_length(size_t code_points);
// Adds a space before a piece that does not start with a space.
PreTokenizer prefix_space();
PreTokenizer rewrite(Normalizer normalizer);

enum class Prepend : uint8_t { never, first, always };
// Replaces spaces by `replacement` and adds it at the start of the text.
PreTokenizer metaspace(std::string replacement, Prepend prepend);

}  // namespace bowline::text
