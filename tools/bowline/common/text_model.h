// Models that read text as bytes, and the devices that they train on.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

// Errors  bad_file: the file is damaged, or the model has no entry point "loss" that takes bytes.
Result<Model> open_text_model(const std::string& path);

// As open_device(). One for tests is said to be one. Errors  those, and unsupported: it computes nothing.
Result<Device> open_computing_device(const std::string& name, int threads, uint64_t memory_budget);

}  // namespace bowline::command
