// Draws a token from the largest logits if they determine the result, else from all logits.
#pragma once

#include "bowline_text.h"

namespace bowline::text {

// Errors  bad_argument: an option is out of range.
Status check(const SamplerOptions& options);

// The known logits for the next token.
struct Logits {
  // The largest logits, descending; ties are ordered by id.
  std::span<const float> top;
  std::span<const int32_t> ids;
  float lse = 0;               // log of the sum of e^logit over the vocabulary
  std::span<const float> all;  // by id; empty: not known
  size_t vocabulary = 0;
};

// Draws the token at a position. `window`: the last tokens, with ids inside the vocabulary. Empty
// if `top` does not determine the token and `all` is not known. With `all` the result is the same,
// except for the rounding of sums.
std::optional<int32_t> draw(const SamplerOptions& options, const Logits& logits,
                            std::span<const int32_t> window, uint64_t position);

}  // namespace bowline::text
