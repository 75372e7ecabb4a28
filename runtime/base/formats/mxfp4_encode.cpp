#include "base/format_encoders.h"

namespace bowline::encoders {
namespace {

// Floats of E2M1 without their sign, times 2.
constexpr float kFloats[8] = {0, 1, 2, 3, 4, 6, 8, 12};

int nearest_float(float x) {
  const float magnitude = std::abs(x);
  int best = 0;
  for (int i = 1; i < 8; ++i) {
    best = std::abs(kFloats[i] - magnitude) < std::abs(kFloats[best] - magnitude) ? i : best;
  }
  return best == 0 ? 0 : best | (x < 0 ? 8 : 0);
}

}  // namespace

// The exponent is that of the specification, or the next one if the squared error is smaller.
void encode_mxfp4(const float* from, std::byte* block) {
  const float most = magnitude_of({from, 32});
  const int exponent = most == 0 ? 0 : std::clamp(std::ilogb(most) - 2 + 127, 0, 253);
  double best = INFINITY;
  for (int e = exponent; e <= exponent + 1; ++e) {
    std::array<int, 32> indices;
    double error = 0;
    for (size_t i = 0; i < 32; ++i) {
      const double scaled = std::ldexp(double{from[i]}, 128 - e);
      indices[i] = nearest_float(static_cast<float>(scaled));
      const double wrong =
          (std::abs(scaled) - kFloats[indices[i] & 7]) * std::ldexp(1.0, e - exponent);
      error += wrong * wrong;
    }
    if (error < best) {
      best = error;
      std::fill_n(block, 17, std::byte{0});
      put_bits(block[0], e);
      for (int i = 0; i < 32; ++i) {
        put_nibble_of_halves(block + 1, i, indices[static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace bowline::encoders
