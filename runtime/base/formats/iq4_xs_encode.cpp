#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_iq4_xs(const float* from, std::byte* block) {
  constexpr GroupForm kForm{8, 32, -32, 31};
  const UnevenValues values;
  const Groups groups = quantize_groups(from, kForm, values, block, nullptr);
  for (int g = 0; g < 8; ++g) {
    const int scale = groups.scales[static_cast<size_t>(g)] + 32;
    put_bits(block[4 + g / 2], (scale & 15) << (g % 2 * 4));
    put_bits(block[2 + g / 4], scale >> 4 << (g % 4 * 2));
  }
  for (int i = 0; i < 256; ++i) {
    const auto value = static_cast<float>(groups.values[static_cast<size_t>(i)]);
    put_nibble_of_halves(block + 8 + i / 32 * 16, i % 32, values.index(value));
  }
}

}  // namespace bowline::encoders
