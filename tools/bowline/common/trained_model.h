// Models that are trained on data of a task, and the devices that they train on.
#pragma once

#include <string>

#include "verb.h"

namespace bowline::command {

// Errors  bad_file: the file is damaged, or the model has no entry point "loss" that takes what its
//         task gives: tokens and labels, of
// a model that classifies the entry point "classify" with tokens and lengths too.
Result<Model> open_trained_model(const std::string& path);

// As open_device(). Errors  those, and unsupported: the device computes nothing.
Result<Device> open_computing_device(const DeviceFlags& flags);

}  // namespace bowline::command
