// Access to the objects behind the public classes, for the library and its tests. This header is
// not installed; programs use describe().
#pragma once

#include "base/detail.h"
#include "bowline.h"

namespace bowline {

struct Internals {
  // Null if the object was moved from.
  static const std::shared_ptr<graph::ModelState>& state(const Model& model) {
    return model.state_;
  }
  static const std::shared_ptr<device::OpenDevice>& open(const Device& device) {
    return device.open_;
  }
  static Model model(std::shared_ptr<graph::ModelState> state) { return Model(std::move(state)); }
  static Device device(std::shared_ptr<device::OpenDevice> open) { return Device(std::move(open)); }
};

}  // namespace bowline
