// What a classifier takes for what, as parts of a page.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bowline::command {

// How often an example of a class was predicted to be of another.
struct Confusion {
  std::vector<std::string> labels;
  std::vector<uint64_t>
      counts;  // labels.size() squared; rows are the true classes, columns the predicted ones

  uint64_t at(size_t truth, size_t predicted) const {
    return counts[truth * labels.size() + predicted];
  }
};

// An example whose prediction is wrong.
struct ConfusedExample {
  std::string text;
  std::string truth;
  std::string predicted;
  double probability = 0;        // of the predicted class
  double truth_probability = 0;  // and of the true one
};

// A matrix whose cells are as dark as their share of the row; of many classes those that are
// confused most, and the pairs.
std::string confusion_html(const Confusion& confusion);
// Precision, recall and F1 of each class.
std::string classes_html(const Confusion& confusion);
// In the order in which they are given: the surest mistakes first, as a rule.
std::string examples_html(std::span<const ConfusedExample> examples);

}  // namespace bowline::command
