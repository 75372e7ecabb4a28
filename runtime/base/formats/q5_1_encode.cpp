#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q5_1(const float* from, std::byte* block) {
  const Steps steps = store_range({from, 32}, 31, block, block + 2);
  for (int i = 0; i < 32; ++i) {
    const int value = steps.of(from[i]);
    put_nibble_of_halves(block + 8, i, value & 15);
    put_bits(block[4 + i / 8], value >> 4 << (i % 8));
  }
}

}  // namespace bowline::encoders
