// The members of bowline::Device.
#include "device/device.h"

#include "base/boundary.h"
#include "bowline.h"

namespace bowline {

// Not in the header: with RTTI and UBSan, the program would look for types in the control block of
// the library.
Device::Device(std::shared_ptr<device::OpenDevice> open) : open_(std::move(open)) {}
Device::~Device() = default;
Device::Device(const Device&) = default;
Device& Device::operator=(const Device&) = default;
Device::Device(Device&&) noexcept = default;
Device& Device::operator=(Device&&) noexcept = default;

std::vector<DeviceInfo> Device::list() {
  return guarded([] { return device::list_devices(); });
}

Result<Device> Device::open(std::string_view name, const DeviceOptions& options) {
  return guarded([&]() -> Result<Device> {
    BOWLINE_TRY_ASSIGN(auto open, device::open_device(name, options));
    return Device(std::move(open));
  });
}

const DeviceInfo& Device::info() const {
  static const DeviceInfo none;
  return open_ == nullptr ? none : open_->info();
}
DeviceCounters Device::counters() const {
  return open_ == nullptr ? DeviceCounters{} : open_->counters();
}
void Device::reset_counters() {
  if (open_ != nullptr) {
    open_->reset_counters();
  }
}

}  // namespace bowline
