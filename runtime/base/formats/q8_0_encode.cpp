#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q8_0(const float* from, std::byte* block) {
  const float magnitude = magnitude_of({from, 32});
  const float inverse = steps_per_value(magnitude / 127, store_scale(magnitude, 127, block));
  for (int i = 0; i < 32; ++i) {
    const float value = std::clamp(std::round(from[i] * inverse), -127.0f, 127.0f);
    put_bits(block[2 + i], static_cast<int>(value) & 255);
  }
}

}  // namespace bowline::encoders
