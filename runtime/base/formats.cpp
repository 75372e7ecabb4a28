#include "base/formats.h"

#include <algorithm>
#include <array>
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

template <class Value>
const BlockFormat* find(Value value, Value BlockFormat::*member) {
  const std::span<const BlockFormat> all = block_formats();
  const auto found = std::ranges::find(all, value, member);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::span<const BlockFormat> block_formats() {
#define BOWLINE_FORMAT(...) +1
  static constexpr std::array<BlockFormat, 0
#include "generated/formats.inc"
                              >
      kFormats = {{
#define BOWLINE_FORMAT(name, ...) \
  {#name, __VA_ARGS__, decode_block<name##_format>, encoders::encode_##name},
#include "generated/formats.inc"
      }};
  return kFormats;
}

const BlockFormat* find_block_format(std::string_view name) {
  return find(name, &BlockFormat::name);
}

const BlockFormat* find_block_format_of_gguf(uint32_t type) {
  return find(type, &BlockFormat::gguf_type);
}

}  // namespace bowline
