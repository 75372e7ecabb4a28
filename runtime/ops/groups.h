// Parts shared by GroupNorm and InstanceNorm. InstanceNorm is GroupNorm with one group per channel.
#pragma once

#include "ops/channels.h"
#include "ops/counted.h"

namespace bowline {

constexpr int64_t kMostEmptyGroups = 1024;

inline Status check_groups(const Shape& x, int64_t groups) {
  BOWLINE_REQUIRE(groups >= 1 && x[1] % groups == 0, "{} channels are not a multiple of {} groups.",
                  x[1], groups);
  // Every group has statistics, even if it is empty.
  BOWLINE_REQUIRE(groups <= std::max<int64_t>(x[1], kMostEmptyGroups),
                  "There are {} groups without channels, above the limit of {}.", groups,
                  kMostEmptyGroups);
  return {};
}

inline Status group_norm_gradient(GradientContext& c, const Attributes& attributes) {
  return c.din_each(c.add(Op::GroupNormGrad, {c.in(0), c.in(1), c.dout(0)}, attributes));
}

// Samples are normalized independently, so the batch axis may be dynamic.
inline Status counted_samples(CountedContext& c) {
  BOWLINE_TRY(counted::none(c, 0, 1, c.in(0).rank(), "every axis except the batch must be static"));
  for (const int i : {1, 2}) {
    BOWLINE_TRY(counted::none(c, i, "a weight must be static"));
  }
  counted::pass(c, 0, 1);
  return {};
}

inline void group_norm_oracle(const OracleContext& c, size_t groups, double eps) {
  const Planes p = planes_of(c.shape(0));
  const size_t n = groups == 0 ? 0 : p.channels / groups * p.plane;
  const auto magnitude = c.zero_magnitude(0);
  for (size_t first = 0; first < c.in(0).size(); first += n) {
    const auto x = c.in(0).subspan(first, n);
    const Normal s = normal_of(x, eps);
    for (size_t i = 0; i < n; ++i) {
      const size_t channel = (first + i) / p.plane % p.channels;
      c.out(0)[first + i] = s.of(x[i]) * c.in(1)[channel] + c.in(2)[channel];
      magnitude[first + i] = s.lost(x[i]) * std::abs(c.in(1)[channel]) + std::abs(c.in(2)[channel]);
    }
  }
}

}  // namespace bowline
