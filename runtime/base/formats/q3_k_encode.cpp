#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q3_k(const float* from, std::byte* block) {
  constexpr GroupForm kForm{16, 16, -32, 31};
  const Groups groups = quantize_groups(from, kForm, Integers{-4, 3}, block + 108, nullptr);
  for (int i = 0; i < 256; ++i) {
    const int value = groups.values[static_cast<size_t>(i)] + 4;
    put_crumb_of_runs(block + 32, i, value & 3);
    put_bits(block[i % 32], value >> 2 << (i / 32));
  }
  for (int g = 0; g < 16; ++g) {
    const int scale = groups.scales[static_cast<size_t>(g)] + 32;
    put_bits(block[96 + g % 8], (scale & 15) << (g / 8 * 4));
    put_bits(block[104 + g % 4], scale >> 4 << (g / 4 * 2));
  }
}

}  // namespace bowline::encoders
