// What the public objects hold, for the library and for tests of its layers. It is not installed: a
// program uses describe().
#pragma once

#include "base/detail.h"
#include "bowline.h"

namespace bowline {

struct Internals {
  // Null where the object was moved from.
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
