#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q4_1(const float* from, std::byte* block) {
  const Steps steps = store_range({from, 32}, 15, block, block + 2);
  for (int i = 0; i < 32; ++i) {
    put_nibble_of_halves(block + 4, i, steps.of(from[i]));
  }
}

}  // namespace bowline::encoders
