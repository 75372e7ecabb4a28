#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q4_k(const float* from, std::byte* block) {
  constexpr GroupForm kForm{8, 32, 0, 63, 63};
  const Groups groups = quantize_groups(from, kForm, Integers{0, 15}, block, block + 2);
  put_6_bits(groups, block + 4);
  for (int i = 0; i < 256; ++i) {
    put_bits(block[16 + i / 64 * 32 + i % 32],
             groups.values[static_cast<size_t>(i)] << (i / 32 % 2 * 4));
  }
}

}  // namespace bowline::encoders
