#include "base/format_encoders.h"

namespace bowline::encoders {

// The value of the largest magnitude becomes -8, so the scale has the other sign.
void encode_q4_0(const float* from, std::byte* block) {
  const float most = extreme_of({from, 32});
  const float stored = store_scale(std::abs(most), 8, block);
  const float sign = most > 0 ? -1.0f : 1.0f;
  store_half(stored == 0 ? 0 : sign * stored, block);
  const float inverse = sign * steps_per_value(std::abs(most) / 8, stored);
  for (int i = 0; i < 32; ++i) {
    const float x = inverse == 0 ? 0 : from[i] * inverse;
    put_nibble_of_halves(block + 2, i, std::clamp(static_cast<int>(x + 8.5f), 0, 15));
  }
}

}  // namespace bowline::encoders
