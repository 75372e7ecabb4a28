// Loss weights of classes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// Returns the factor of the loss for each class.
// `choice`: "none": 1. "balanced": texts / (classes * texts of the class), so that all classes have
// the same total weight; 1 for a class without texts. Otherwise the path of a JSON object with a
// number per label.
// `counts`: number of texts per class.
// Errors  bad_file: the file is not such an object, lacks a label, has other labels or one twice,
//         or a number is negative or not finite.
Result<std::vector<float>> class_weights(const std::string& choice,
                                         std::span<const std::string> labels,
                                         std::span<const uint64_t> counts);

// True for "none" and "balanced", false for a path.
bool is_rule(std::string_view choice);

}  // namespace bowline::command
