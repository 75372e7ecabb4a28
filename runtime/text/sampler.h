// Draws a token: from the largest logits where they decide it, else from all.
#pragma once

#include "bowline_text.h"

namespace bowline::text {

// Errors  bad_argument: an option is out of its range.
Status check(const SamplerOptions& options);

// What is known of the logits behind a text.
struct Logits {
  // The largest ones, descending; of equal ones that of the lower id first.
  std::span<const float> top;
  std::span<const int32_t> ids;
  float lse = 0;               // log of the sum of e^logit over the vocabulary
  std::span<const float> all;  // by id; empty: not known
  size_t vocabulary = 0;
};

// Never enough are the largest ones: every token of the vocabulary may be drawn.
bool needs_all(const SamplerOptions& options);

// The token at a position, by the logits and the window of tokens in front of it; none where `top`
// does not decide it and `all` is not known. With `all` the answer is that without, but for the
// roundings of sums. Ids in the window are of the vocabulary.
std::optional<int32_t> draw(const SamplerOptions& options, const Logits& logits,
                            std::span<const int32_t> window, uint64_t position);

}  // namespace bowline::text
