// Wall-clock time and medians, in seconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/status.h"

namespace bowline::command {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Requires at least one time.
inline double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

// Returns the time of a call.
template <class Call>
Result<double> seconds_of(const Call& call) {
  const Clock::time_point start = Clock::now();
  BOWLINE_TRY(call());
  return seconds_since(start);
}

// Returns the median of `runs` results of `measure`, after `warmup` others.
template <class Measure>
Result<double> median_of(int runs, int warmup, const Measure& measure) {
  std::vector<double> times;
  for (int i = 0; i < warmup + runs; ++i) {
    BOWLINE_TRY_ASSIGN(const double time, measure());
    if (i >= warmup) {
      times.push_back(time);
    }
  }
  return median(std::move(times));
}

// Returns the median time of `runs` calls, after `warmup` untimed calls.
template <class Call>
Result<double> median_seconds(int runs, int warmup, const Call& call) {
  return median_of(runs, warmup, [&] { return seconds_of(call); });
}

}  // namespace bowline::command
