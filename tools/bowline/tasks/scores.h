// Measures a classifier: loss, accuracy, F1 and the confusion matrix.
#pragma once

#include "tasks/task.h"

namespace bowline::command {

// Predictions of a label, or of several labels together.
struct LabelCounts {
  uint64_t right = 0;
  uint64_t missed = 0;    // false negatives
  uint64_t mistaken = 0;  // false positives

  uint64_t all() const { return right + missed + mistaken; }
  // Returns 0 if nothing is right.
  double f1() const;
};

class Scores {
 public:
  Scores(std::span<const std::string> labels, bool several);

  // Adds a text with its logits and its true classes.
  void add(std::span<const float> logits, std::span<const int32_t> classes,
           const std::string& text);

  // Returns the mean loss without class weights and label smoothing; "accuracy", the share of texts
  // with exactly the right labels; and "macro_f1", the mean F1 of the classes that occur in the
  // truth or in a prediction.
  Measure measure() const;

 private:
  void count(std::span<const int32_t> classes, std::span<const int32_t> predicted);
  void note(const ConfusedExample& mistake);

  std::vector<std::string> labels_;
  bool several_;
  double nats_ = 0;
  uint64_t texts_ = 0;
  uint64_t right_ = 0;
  std::vector<LabelCounts> counts_;
  std::vector<uint64_t> confusion_;
  std::vector<ConfusedExample> mistakes_;
};

}  // namespace bowline::command
