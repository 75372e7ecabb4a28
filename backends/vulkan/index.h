// Tables for the index arithmetic of shaders (shaders/lib/index.glsl).
#pragma once

#include <vector>

#include "core/loops.h"

namespace bowline::detail::vulkan {

// At least one loop, so that a shader for rank 1 handles a single element.
template <int N>
uint32_t rank_of(const Loops<N>& loops) {
  return loops.rank == 0 ? 1 : static_cast<uint32_t>(loops.rank);
}

// Returns the words at the start of a table: the sizes, and the magic numbers and shifts to divide
// by the sizes.
std::vector<uint32_t> divisors(std::span<const uint32_t> dims);

// The divisors, then the strides of each operand.
template <int N>
std::vector<uint32_t> words_of(const Loops<N>& loops) {
  const auto rank = static_cast<size_t>(loops.rank);
  const uint32_t one = 1;
  std::vector<uint32_t> words =
      divisors(rank == 0 ? std::span(&one, 1) : std::span(loops.sizes, rank));
  for (const auto& strides : loops.strides) {
    for (uint32_t axis = 0; axis < rank_of(loops); ++axis) {
      words.push_back(static_cast<uint32_t>(strides[axis]));
    }
  }
  return words;
}

}  // namespace bowline::detail::vulkan
