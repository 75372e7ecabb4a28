// The classes of a classifier, its predictions and its loss.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bowline.h"
#include "tasks/task.h"

namespace bowline::command {

// Returns the number of classes. Errors  bad_file: the model has no classification head.
Result<int64_t> classes_of(const Model& model);
// Returns the names of the classes. Empty: the model has no names.
// Errors  bad_file: the number of names differs from the number of classes.
Result<std::vector<std::string>> labels_in(const Model& model);
// Returns the labels of --labels, else of the model, else `of_rows`, those of the data.
// Errors  bad_file: their number differs from the number of classes, a label has several lines, or
//         --labels contradicts the model.
Result<std::vector<std::string>> choose_labels(const Model& model, const DataOptions& options,
                                               std::vector<std::string> of_rows);
// Stores the labels in the model.
Status set_labels(Model& model, std::span<const std::string> labels);
// With several labels per text: the smallest probability at which a label is predicted.
inline constexpr double kSure = 0.5;
// True if a text can have several labels.
bool gives_several(const Model& model);

// Returns the probability of each class of a text: softmax, or sigmoid if `several`.
std::vector<double> probabilities(std::span<const float> logits, bool several);
// Returns the negative log-likelihood of the classes of a text in nats. With `several` this is the
// mean over all classes.
double nats_of(std::span<const float> logits, std::span<const int32_t> classes, bool several);

}  // namespace bowline::command
