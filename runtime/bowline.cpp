#include "bowline.h"

#include "core/boundary.h"
#include "device/device.h"
#include "model/layout.h"

namespace bowline {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::bad_argument:
      return "bad_argument";
    case Code::bad_file:
      return "bad_file";
    case Code::index_out_of_range:
      return "index_out_of_range";
    case Code::unsupported:
      return "unsupported";
    case Code::non_finite:
      return "non_finite";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::io_error:
      return "io_error";
    case Code::device_lost:
      return "device_lost";
    case Code::device_poisoned:
      return "device_poisoned";
    case Code::over_budget:
      return "over_budget";
    case Code::cancelled:
      return "cancelled";
    case Code::internal:
      return "internal";
  }
  return "internal";
}

std::string_view version() {
  static_assert(model::kFormatMajor == 1);
  return BOWLINE_VERSION " (format 1)";
}

std::vector<DeviceInfo> Device::list() {
  return guarded([] { return device::list_devices(); });
}

Result<Device> Device::open(std::string_view name, const DeviceOptions& options) {
  return guarded([&]() -> Result<Device> {
    BOWLINE_ASSIGN(auto open, device::open_device(name, options));
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
