// The attributes of a rotation, which Rope and FusedWriteRows have.
#pragma once

#include "base/status.h"

namespace bowline::detail {

// Checks the attributes for heads of `head_dim` channels.
template <class Attributes>
Status check_rotation(const Attributes& t, int64_t head_dim) {
  const int64_t dims = t.rotary_dims() == 0 ? head_dim : t.rotary_dims();
  BOWLINE_REQUIRE(dims >= 0 && dims <= head_dim && dims % 2 == 0,
                  "rotary_dims ({}) is odd or outside the head size ({}).", dims, head_dim);
  BOWLINE_REQUIRE(t.base() >= 1 && t.base() <= 1e9f, "Base {} lies outside 1..1e9.", t.base());
  constexpr int64_t kMost = int64_t{1} << 24;
  BOWLINE_REQUIRE(t.position_offset() >= 0 && t.position_offset() <= kMost,
                  "Position offset {} lies outside 0..{}.", t.position_offset(), kMost);
  BOWLINE_REQUIRE(t.factor() >= 1 && t.factor() <= 1e6f, "Factor {} lies outside 1..1e6.",
                  t.factor());
  if (t.factor() != 1) {
    BOWLINE_REQUIRE(
        t.low_frequency_factor() > 0 && t.high_frequency_factor() > t.low_frequency_factor(),
        "The frequency factors {} and {} are not positive and ascending.", t.low_frequency_factor(),
        t.high_frequency_factor());
    BOWLINE_REQUIRE(t.original_length() >= 1 && t.original_length() <= kMost,
                    "Original length {} lies outside 1..{}.", t.original_length(), kMost);
  }
  if (t.frequencies()->size() != 0) {
    BOWLINE_REQUIRE(t.frequencies()->size() == dims / 2,
                    "{} frequencies are given, but {} pairs are rotated.", t.frequencies()->size(),
                    dims / 2);
    BOWLINE_REQUIRE(t.factor() == 1, "Both frequencies and a factor ({}) are given.", t.factor());
    for (const float f : *t.frequencies()) {
      BOWLINE_REQUIRE(f >= 0 && f <= 1, "Frequency {} lies outside 0..1.", f);
    }
  }
  return {};
}

}  // namespace bowline::detail
