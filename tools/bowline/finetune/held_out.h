// The held-out losses of a run: before training, the best and the last. Unit: Task::unit().
#pragma once

#include <cstdint>
#include <string>

#include "common/checkpoints.h"

namespace bowline::command {

class HeldOut {
 public:
  struct Loss {
    uint64_t step = 0;
    double value = 0;
  };

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
  // The loss before the first step.
  const Loss& first() const { return first_; }
  const Loss& best() const { return best_; }
  const Loss& last() const { return last_; }
  // Number of evaluations since the best one, up to `step`. `every`: steps between evaluations.
  uint64_t stale(uint64_t step, uint64_t every) const;
  // True if a model with this loss can replace a file: the loss is finite and not above the loss
  // before training.
  bool acceptable(double loss) const;

 private:
  std::string key_;
  bool begun_ = false;
  Loss first_;
  Loss best_;
  Loss last_;
};

}  // namespace bowline::command
