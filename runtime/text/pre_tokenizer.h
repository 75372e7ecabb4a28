// Pre-tokenizers of tokenizer.json: they cut text into words, within which the model looks for
// pieces.
#pragma once

#include <functional>

#include "text/pieces.h"

namespace bowline::text {

using PreTokenizer = std::function<Status(Pieces&)>;

// What becomes of the matches of a pattern that text is cut at.
enum class Matches : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

PreTokenizer split(Pattern pattern, Matches matches, bool invert = false);
PreTokenizer fixed_length(size_t code_points);
// A space before a piece that has none.
PreTokenizer prefix_space();
PreTokenizer rewrite(Normalizer normalizer);

enum class Prepend : uint8_t { never, first, always };
// Spaces become `replacement`, which begins the text too.
PreTokenizer metaspace(std::string replacement, Prepend prepend);

}  // namespace bowline::text
