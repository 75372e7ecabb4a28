// The held-out losses of a run: before training, the best and the last. Unit: Task::unit().
#pragma once

#include <cstdint>
#include <string>

#include "common/checkpoints.h"

namespace bowline::command {

class HeldOut {
 public:
  explicit HeldOut(std::string key = "") : key_(std::move(key)) {}

  // Write the losses to the config of a checkpoint, and read them back. read_from() returns false
  // if the losses cannot be compared with the losses of this run.
  void append_to(Config& config) const;
  bool read_from(const Config& config);

  // Sets the loss before the first step.
  void begin(uint64_t step, double loss);
  // Adds a later loss. Returns true if it is the best so far.
  bool add(uint64_t step, double loss);
  // Forgets the last loss if it is from after `step`, so that its evaluation is repeated.
  void go_back(uint64_t step);

  bool begun() const { return begun_; }
  double before() const { return before_; }
  double last() const { return last_; }
  double best() const { return best_; }
  uint64_t first_step() const { return first_step_; }
  uint64_t last_step() const { return last_step_; }
  uint64_t best_step() const { return best_step_; }
  // Number of evaluations since the best one, up to `step`. `every`: steps between evaluations.
  uint64_t stale(uint64_t step, uint64_t every) const;
  // True if a model with this loss can replace a file: the loss is finite and not above the loss
  // before training.
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
