// Wall-clock time and medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

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

}  // namespace bowline::command
