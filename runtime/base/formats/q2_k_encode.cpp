#include "base/format_encoders.h"

namespace bowline::encoders {

void encode_q2_k(const float* from, std::byte* block) {
  constexpr GroupForm kForm{16, 16, 0, 15, 15};
  const Groups groups = quantize_groups(from, kForm, Integers{0, 3}, block + 80, block + 82);
  for (size_t g = 0; g < 16; ++g) {
    put_bits(block[g], groups.scales[g] | groups.minimums[g] << 4);
  }
  for (int i = 0; i < 256; ++i) {
    put_crumb_of_runs(block + 16, i, groups.values[static_cast<size_t>(i)]);
  }
}

}  // namespace bowline::encoders
