// What a classifier gets right: loss, accuracy, F1, the confusion of classes.
#pragma once

#include "tasks/task.h"

namespace bowline::command {

class Scores {
 public:
  Scores(std::span<const std::string> labels, bool several);

  // The logits of a text, and the classes that it has.
  void add(std::span<const float> logits, std::span<const int32_t> classes,
           const std::string& text);

  // Mean loss, without class weights and smoothing; "accuracy", the share of texts with all labels
  // right; "macro_f1", the mean over the classes that a text has or got.
  Measure measure() const;

 private:
  struct Count {
    uint64_t right = 0;
    uint64_t missed = 0;    // texts of the class that did not get it
    uint64_t mistaken = 0;  // texts of other classes that did
  };
  void count(std::span<const int32_t> classes, std::span<const int32_t> predicted);
  void note(const ConfusedExample& mistake);

  std::vector<std::string> labels_;
  bool several_;
  double nats_ = 0;
  uint64_t texts_ = 0;
  uint64_t right_ = 0;
  std::vector<Count> counts_;
  std::vector<uint64_t> confusion_;
  std::vector<ConfusedExample> mistakes_;
};

}  // namespace bowline::command
