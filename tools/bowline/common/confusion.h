// Confusion matrix and mistakes of a classifier, as parts of an HTML page.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bowline::command {

// Number of examples per true class and predicted class.
struct Confusion {
  std::vector<std::string> labels;
  // [classes, classes], row-major. Rows are the true classes, columns the predicted classes.
  std::vector<uint64_t> counts;

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
  double truth_probability = 0;  // of the true class
};

// Returns the confusion matrix and a list of the pairs with most mistakes. Cells are shaded by
// their share of the row. With many classes, only those with most mistakes are shown.
std::string confusion_html(const Confusion& confusion);
// Precision, recall and F1 of each class.
std::string classes_html(const Confusion& confusion);
// Lists the examples in the given order.
std::string examples_html(std::span<const ConfusedExample> examples);

}  // namespace bowline::command
