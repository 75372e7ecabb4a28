// Chooses among the devices of backends.
#pragma once

#include "device/device.h"

namespace bowline::detail::device {

// How a caller of open_device() names a device.
struct Wanted {
  std::string_view name;        // "best", "gpu", or the name of a device
  std::string_view model = {};  // of a device that this machine need not have; usually empty
  bool planning = false;        // the device needs no memory (planning.h)
};

// Tests an opened device unless it only plans, and adds what every device has.
// Errors  unsupported: the self test fails. over_budget: the staging buffers exceed the budget.
Result<std::shared_ptr<OpenDevice>> finish_opening(DeviceInfo info, std::unique_ptr<Device> device,
                                                   bool planning, const DeviceOptions& options);

// Opens "best" or "gpu" of the backends that may have a GPU or need none. If a device cannot be
// opened or fails its self test, the next one is tried, and DeviceInfo::notice gives the reason.
Result<std::shared_ptr<OpenDevice>> open_best(std::span<const Backend* const> backends,
                                              const Wanted& wanted, const DeviceOptions& options);

}  // namespace bowline::detail::device
