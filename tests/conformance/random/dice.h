// Random choices that depend only on a seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace bowline::conformance::random {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}

  // Source  Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
  uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(bits() % static_cast<uint64_t>(n > 0 ? n : 1));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // in [0, 1)
  bool chance(double p) { return uniform() < p; }
  // Source  Box, Muller, "A Note on the Generation of Random Normal Deviates", 1958.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    has_spare_ = true;
    spare_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }

 private:
  uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace bowline::conformance::random
