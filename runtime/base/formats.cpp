#include "base/formats.h"

#include <algorithm>
#include <bit>

#include "base/float16.h"
#include "base/format_encoders.h"

namespace bowline {
namespace {

#include "base/format_dialect.inc"

template <class F>
void decode_block(const std::byte* from, float* to) {
  for (int g = 0; g < F::kBlock / F::kGroup; ++g) {
    float scale = 0, least = 0;
    F::scales(from, g, scale, least);
    for (int i = 0; i < F::kGroup; ++i) {
      *to++ = scale * static_cast<float>(F::code(from, g, i)) - least;
    }
  }
}

}  // namespace

constexpr BlockFormat kBlockFormats[] = {
#define BOWLINE_FORMAT(name, ...) \
  {#name, __VA_ARGS__, decode_block<name##_format>, encoders::encode_##name},
#include "generated/formats.inc"
};

std::span<const BlockFormat> block_formats() { return kBlockFormats; }

const BlockFormat* find_block_format(std::string_view name) {
  const auto* const found = std::ranges::find(kBlockFormats, name, &BlockFormat::name);
  return found == std::end(kBlockFormats) ? nullptr : found;
}

const BlockFormat* find_block_format_of_gguf(uint32_t type) {
  const auto* const found = std::ranges::find(kBlockFormats, type, &BlockFormat::gguf_type);
  return found == std::end(kBlockFormats) ? nullptr : found;
}

}  // namespace bowline
