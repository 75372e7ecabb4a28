#include <algorithm>
#include <cmath>
#include <numbers>

#include "bowline.h"

namespace bowline {

float learning_rate_at(const Schedule& s, uint64_t step) {
  const double rate = static_cast<double>(s.learning_rate);
  if (step <= s.warmup_steps && s.warmup_steps > 0) {
    return static_cast<float>(rate * static_cast<double>(step) /
                              static_cast<double>(s.warmup_steps));
  }
  if (s.kind == Schedule::Kind::constant || s.total_steps <= s.warmup_steps) {
    return s.learning_rate;
  }
  const double done = static_cast<double>(std::min(step, s.total_steps) - s.warmup_steps) /
                      static_cast<double>(s.total_steps - s.warmup_steps);
  const double left =
      s.kind == Schedule::Kind::linear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  const double last = static_cast<double>(s.final_fraction);
  return static_cast<float>(rate * (last + (1 - last) * left));
}

}  // namespace bowline
