#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_iq4_nl(const float* from, std::byte* block) {
  const UnevenValues values;
  const float scale = store_half(fit_scale(std::span(from, 32), values), block);
  for (int i = 0; i < 32; ++i) {
    put_nibble_of_halves(block + 2, i, values.index(scale == 0 ? 0 : from[i] / scale));
  }
}

}  // namespace bowline::encoders
