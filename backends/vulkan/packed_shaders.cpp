#include "packed_shaders.h"

#include "vulkan_shaders.h"

namespace bowline::detail::vulkan {

std::vector<uint32_t> unpack(std::span<const uint8_t> packed, size_t count) {
  std::vector<uint32_t> out;
  out.reserve(count);
  const uint8_t* at = packed.data();
  const auto number = [&at] {
    uint32_t value = 0;
    for (int shift = 0;; shift += 7) {
      value |= uint32_t{*at & 0x7Fu} << shift;
      if ((*at++ & 0x80) == 0) {
        return value;
      }
    }
  };
  while (out.size() < count) {
    for (uint32_t new_words = number(); new_words > 0; --new_words) {
      out.push_back(number());
    }
    const uint32_t length = number();
    const uint32_t distance = number();
    for (uint32_t i = 0; i < length; ++i) {
      out.push_back(out[out.size() - distance]);
    }
  }
  return out;
}

std::vector<uint32_t> shader_module(uint32_t shader) {
  const PackedShader& s = kPackedShaders[shader];
  const std::vector<uint32_t> words =
      unpack(std::span(kPackedWords).subspan(s.at), s.before + s.words);
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(s.before);
  return {begin, begin + static_cast<std::ptrdiff_t>(s.words)};
}

}  // namespace bowline::detail::vulkan
