// The sum of the exponentials of a row relative to its maximum, in one pass.
#pragma once

#include <cmath>

#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

struct ExponentialSum {
  float top;  // the maximum
  float sum;  // of exp(x - top)
};

// Each thread keeps its sum relative to its running maximum, and loads several elements before it
// uses the first. All threads of the team must call it; all get the result.
template <unsigned kTeam, int kWidth, class T>
__device__ ExponentialSum exponential_sum(const T* x, uint64_t n) {
  constexpr int kLoads = 4;
  constexpr uint64_t kStep = kTeam * kWidth;
  float top = -INFINITY;
  float sum = 0;
  for (uint64_t first = team_lane<kTeam>() * kWidth; first < n; first += kLoads * kStep) {
    float v[kLoads][kWidth] = {};
    float higher = top;
    for (int b = 0; b < kLoads; ++b) {
      if (first + b * kStep < n) {
        read_some(x + first + b * kStep, v[b]);
      }
    }
    for (int b = 0; b < kLoads; ++b) {
      for (int k = 0; k < kWidth && first + b * kStep < n; ++k) {
        higher = fmaxf(higher, v[b][k]);
      }
    }
    // If all values are -infinity, their differences would be NaN.
    const float base = higher == -INFINITY ? 0.0f : higher;
    sum *= expf(top - base);
    top = higher;
    for (int b = 0; b < kLoads; ++b) {
      for (int k = 0; k < kWidth && first + b * kStep < n; ++k) {
        sum += expf(v[b][k] - base);
      }
    }
  }
  const float highest = team_max<kTeam>(top);
  return {highest, team_sum<kTeam>(sum * expf(top - highest))};
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
