// Models that read text as bytes, and the devices that they train on.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

// Errors  bad_file: the file is damaged, or the model has no entry point "loss" that takes bytes.
Result<Model> open_text_model(const std::string& path);

// Errors  unsupported: there is no such device, or it is one for tests and these are not allowed.
Result<Device> open_real_device(const std::string& name, int threads, bool allow_for_tests);

}  // namespace bowline::command
