#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q6_k(const float* from, std::byte* block) {
  constexpr GroupForm kForm{16, 16, -128, 127};
  const Groups groups = quantize_groups(from, kForm, Integers{-32, 31}, block + 208, nullptr);
  for (int i = 0; i < 256; ++i) {
    const int value = groups.values[static_cast<size_t>(i)] + 32;
    const int part = i / 32 % 4;
    put_bits(block[i / 128 * 64 + part % 2 * 32 + i % 32], (value & 15) << (part / 2 * 4));
    put_bits(block[128 + i / 128 * 32 + i % 32], value >> 4 << (part * 2));
  }
  for (int g = 0; g < 16; ++g) {
    put_bits(block[192 + g], groups.scales[static_cast<size_t>(g)] & 255);
  }
}

}  // namespace bowline::encoders
