// Opens models and devices for training and evaluation.
#pragma once

#include <string>

#include "verb.h"

namespace bowline::command {

// Opens a model that `finetune` and `eval` can run.
// Errors  bad_file: the file is damaged, the tokenizer is unknown, or the entry point "loss" (for
//         classifiers also "classify") is missing or lacks an input that the task sets.
Result<Model> open_trained_model(const std::string& path);

// As open_device(). Errors  unsupported: the device computes no values.
Result<Device> open_computing_device(const DeviceFlags& flags);

}  // namespace bowline::command
