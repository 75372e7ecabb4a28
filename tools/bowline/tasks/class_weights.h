// What the loss of a text is multiplied with, by its class.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// `choice`  "none": 1 each; "balanced": so that every class weighs alike, texts / (classes * texts
// of the class), and 1 for one without
// texts; else a file, a JSON object that has a number for each label. `counts` are the texts of
// each class.
// Errors  bad_file: it is none, lacks a label, or has one twice.
Result<std::vector<float>> class_weights(const std::string& choice,
                                         std::span<const std::string> labels,
                                         std::span<const uint64_t> counts);

// Whether it is no file.
bool is_rule(std::string_view choice);

}  // namespace bowline::command
