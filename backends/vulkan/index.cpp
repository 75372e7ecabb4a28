#include "index.h"

#include <bit>

namespace bowline::detail::vulkan {

std::vector<uint32_t> divisors(std::span<const uint32_t> dims) {
  std::vector<uint32_t> words(dims.begin(), dims.end()), shifts;
  for (const uint32_t dim : dims) {
    const uint64_t d = dim < 1 ? 1 : dim;
    const auto shift = static_cast<uint32_t>(std::bit_width(d - 1));
    words.push_back(static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1));
    shifts.push_back(shift);
  }
  words.insert(words.end(), shifts.begin(), shifts.end());
  return words;
}

}  // namespace bowline::detail::vulkan
