// Parts shared by the norms of channels: [N, C, spatial...] as planes, and checks.
#pragma once

#include "ops/normal.h"

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
    BOWLINE_TRY(check_shape(format("input {}", i), c.in(i), "a channel", Shape{x[1]}));
  }
  return {};
}

}  // namespace bowline
