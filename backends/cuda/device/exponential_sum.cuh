// The sum of the exponentials of a row relative to its maximum, in one pass.
#pragma once

#include <cmath>

#include "device/rows.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {

struct ExponentialSum {
  float top;  // the maximum
  float sum;  // of exp(x - top)
};

// Each thread keeps the sum relative to the maximum so far. All threads of the team must come; all get the result.
template <unsigned kTeam, int kWidth>
__device__ ExponentialSum exponential_sum(const float* x, uint64_t n) {
  float top = -INFINITY;
  float sum = 0;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float v[kWidth];
    load(x + i, v);
    float higher = top;
    for (int k = 0; k < kWidth; ++k) {
      higher = fmaxf(higher, v[k]);
    }
    // While all are -infinity their differences would be NaN.
    const float base = higher == -INFINITY ? 0.0f : higher;
    if (higher != top) {
      sum *= expf(top - base);
      top = higher;
    }
    for (int k = 0; k < kWidth; ++k) {
      sum += expf(v[k] - base);
    }
  }
  const float highest = team_max<kTeam>(top);
  return {highest, team_sum<kTeam>(sum * expf(top - highest))};
}

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
