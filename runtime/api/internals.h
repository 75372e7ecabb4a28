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
  // Null if the buffer was moved from.
  static const std::shared_ptr<device::Block>& block(const DeviceBuffer& buffer) {
    return buffer.block_;
  }
  static DeviceBuffer buffer(std::shared_ptr<device::Block> block) {
    return DeviceBuffer(std::move(block));
  }
  static PendingRun pending(std::shared_ptr<exec::PendingState> state) {
    return PendingRun(std::move(state));
  }
  static Model model(std::shared_ptr<graph::ModelState> state) { return Model(std::move(state)); }
  static Device device(std::shared_ptr<device::OpenDevice> open) { return Device(std::move(open)); }
};

}  // namespace bowline
