#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q5_k(const float* from, std::byte* block) {
  constexpr GroupForm kForm{8, 32, 0, 63, 63};
  const Groups groups = quantize_groups(from, kForm, Integers{0, 31}, block, block + 2);
  put_6_bits(groups, block + 4);
  for (int i = 0; i < 256; ++i) {
    const int value = groups.values[static_cast<size_t>(i)];
    put_bits(block[16 + i % 32], value >> 4 << (i / 32));
    put_bits(block[48 + i / 64 * 32 + i % 32], (value & 15) << (i / 32 % 2 * 4));
  }
}

}  // namespace bowline::encoders
