// The held-out losses of a run: before, the best, the last; all in the unit of the task.
#pragma once

#include <cstdint>
#include <string>

#include "common/checkpoints.h"

namespace bowline::command {

class HeldOut {
 public:
  explicit HeldOut(std::string key = "") : key_(std::move(key)) {}

  // What a checkpoint remembers, and reading it back; false if its losses cannot be compared with
  // those of this run.
  void append_to(Config& config) const;
  bool read_from(const Config& config);

  // The loss before the first step.
  void begin(uint64_t step, double loss);
  // A later one. True if it is the best so far.
  bool add(uint64_t step, double loss);
  // The run went back to `step`: evaluations after it are due again.
  void go_back(uint64_t step);

  bool begun() const { return begun_; }
  double before() const { return before_; }
  double last() const { return last_; }
  double best() const { return best_; }
  uint64_t first_step() const { return first_step_; }
  uint64_t last_step() const { return last_step_; }
  uint64_t best_step() const { return best_step_; }
  // Evaluations in a row, up to the one of `step`, that were not better than the best.
  uint64_t stale(uint64_t step, uint64_t every) const;
  // A model with this loss may replace one: it is finite, and no worse than at the begin.
  bool acceptable(double loss) const;

 private:
  std::string key_;
  bool begun_ = false;
  double before_ = 0;
  double best_ = 0;
  double last_ = 0;
  uint64_t first_step_ = 0;
  uint64_t best_step_ = 0;
  uint64_t last_step_ = 0;
};

}  // namespace bowline::command
