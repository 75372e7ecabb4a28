#include "packed_shaders.h"

#include <bit>
#include <span>

#include "lzma.h"
#include "vulkan_shaders.h"

namespace bowline::detail::vulkan {

static_assert(std::endian::native == std::endian::little, "The packed words are little-endian.");

std::vector<uint32_t> shader_module(uint32_t shader) {
  const PackedShader& s = kPackedShaders[shader];
  std::vector<uint32_t> words(s.before + s.words);
  const std::span bytes(reinterpret_cast<uint8_t*>(words.data()), words.size() * sizeof(uint32_t));
  (void)decode_lzma(std::span(kPackedWords).subspan(s.at), bytes);  // all packs are whole
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(s.before));
  return words;
}

}  // namespace bowline::detail::vulkan
