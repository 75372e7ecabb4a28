// Counts the cost of a file or a plan, and compares it with a Budget.
#pragma once

#include <chrono>

#include "base/status.h"
#include "bowline.h"

namespace bowline {

class Meter {
 public:
  explicit Meter(const Budget& budget) : budget_(budget) {}

  // Adds bytes and nodes to the cost.
  // Errors  over_budget: the cost or the time since construction exceeds the budget.
  Status spend(uint64_t bytes, uint64_t nodes = 0);

 private:
  Budget budget_;
  uint64_t bytes_ = 0;
  uint64_t nodes_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace bowline
