// Parts shared by the norms of channels: [N, C, spatial...] as planes, and the magnitude against
// which the rounding error of a normalization is measured.
#pragma once

#include "ops/op.h"

namespace bowline {

// The shape as [batch, channels, elements of a plane].
struct Planes {
  size_t batch = 0;
  size_t channels = 0;
  size_t plane = 1;
};

inline Planes planes_of(const Shape& x) {
  return {static_cast<size_t>(x[0]), static_cast<size_t>(x[1]),
          static_cast<size_t>(x.elements(2, x.rank()))};
}

// Checks eps, and the scale and bias per channel of x.
inline Status check_norm(const InferContext& c, float eps) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 2, "Input x has rank {}, below 2.", x.rank());
  BOWLINE_REQUIRE(eps >= 1e-12f, "Eps {} is not at least 1e-12.", eps);
  for (int i = 1; i < c.inputs(); ++i) {
    BOWLINE_REQUIRE(c.in(i) == Shape{x[1]},
                    "Shape of input {} ({}) is not the shape of a channel ([{}]).", i, c.in(i),
                    x[1]);
  }
  return {};
}

// Statistics of the values that are normalized together, in double precision.
struct Normal {
  double mean = 0;
  double variance = 0;  // biased; 0 if there are no values
  double inverse = 0;   // 1 / sqrt(variance + eps)
  double size = 0;      // mean of |x|
  double square = 0;    // mean of x^2

  // Magnitude for the rounding error of (x - mean) * inverse. The difference x - mean cancels, and
  // so does the variance under the root.
  double lost(double x) const {
    return (std::abs(x) + size) * inverse +
           std::abs((x - mean) * inverse) * (1 + 2 * std::sqrt(square) * inverse);
  }
};

inline Normal normal_of(std::span<const double> x, double eps) {
  Normal out;
  const auto n = static_cast<double>(std::max<size_t>(x.size(), 1));
  for (const double v : x) {
    out.mean += v / n;
    out.size += std::abs(v) / n;
    out.square += v * v / n;
  }
  for (const double v : x) {
    out.variance += (v - out.mean) * (v - out.mean) / n;
  }
  out.inverse = 1 / std::sqrt(out.variance + eps);
  return out;
}

}  // namespace bowline
