// Tables for the groups of elements of each result of a reduction (shaders/lib/groups.glsl).
#pragma once

#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan {

inline std::vector<uint32_t> words_of(const ElementGroups& g) {
  std::vector<uint32_t> words = words_of(g.kept);
  const std::vector<uint32_t> gone = words_of(g.gone);
  words.insert(words.end(), gone.begin(), gone.end());
  return words;
}

// The reason why a loop over `terms` elements, with every `lanes`-th element per invocation, cannot
// run here; null if it can.
inline const char* too_long(const NodeView& node, uint64_t terms, uint32_t lanes) {
  return refuse_loops(node, terms / lanes,
                      "A line has more elements than the loops of a software device run.");
}

}  // namespace bowline::detail::vulkan
