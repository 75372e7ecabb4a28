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
// uses the first. load(i, values) reads the kWidth elements of a group. All threads of the team
// must call it; all get the result.
template <unsigned kTeam, int kWidth, class T, class Load>
__device__ ExponentialSum exponential_sum(const T* x, uint64_t n, Load&& load) {
  constexpr int kLoads = kWidth > 4 ? 2 : 4;
  constexpr uint64_t kStep = kTeam * kWidth;
  const RowParts<kWidth> parts(x, n);
  const uint64_t single = parts.single(team_lane<kTeam>());
  float top = single < n ? read(x + single) : -INFINITY;
  float sum = top == -INFINITY ? 0.0f : 1.0f;
  for (uint64_t first = parts.begin + team_lane<kTeam>() * kWidth; first < parts.end;
       first += kLoads * kStep) {
    float v[kLoads][kWidth] = {};
    float higher = top;
    for (int b = 0; b < kLoads; ++b) {
      if (first + b * kStep < parts.end) {
        load(first + b * kStep, v[b]);
      }
    }
    for (int b = 0; b < kLoads; ++b) {
      for (int k = 0; k < kWidth && first + b * kStep < parts.end; ++k) {
        higher = fmaxf(higher, v[b][k]);
      }
    }
    // If all values are -infinity, their differences would be NaN.
    const float base = higher == -INFINITY ? 0.0f : higher;
    sum *= expf(top - base);
    top = higher;
    for (int b = 0; b < kLoads; ++b) {
      for (int k = 0; k < kWidth && first + b * kStep < parts.end; ++k) {
        sum += expf(v[b][k] - base);
      }
    }
  }
  const float highest = team_max<kTeam>(top);
  return {highest, team_sum<kTeam>(sum * expf(top - highest))};
}
template <unsigned kTeam, int kWidth, class T>
__device__ ExponentialSum exponential_sum(const T* x, uint64_t n) {
  return exponential_sum<kTeam, kWidth>(
      x, n, [&](uint64_t i, float(&v)[kWidth]) { read_some(x + i, v); });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
