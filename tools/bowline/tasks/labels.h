// The classes of a model that classifies, and what it says of texts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// How many classes the head of the model has. Errors  bad_file: it has none.
Result<int64_t> classes_of(const Model& model);
// Their names as the model has them; empty: it has none. Errors  bad_file: they are not as many as
// the classes.
Result<std::vector<std::string>> labels_in(const Model& model);
// The probability from which on one of several labels is given.
inline constexpr double kSure = 0.5;
// A text may have several labels.
bool gives_several(const Model& model);

// The probabilities of the classes of one text: they add up to 1, unless a text may have several.
std::vector<double> probabilities(std::span<const float> logits, bool several);
// The negative log-likelihood of the classes of a text, in nats; of several the mean over all
// classes.
double nats_of(std::span<const float> logits, std::span<const int32_t> classes, bool several);

}  // namespace bowline::command
