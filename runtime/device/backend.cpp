#include "device/backend.h"

namespace bowline::detail::device {

Status Device::unshared(std::string_view what) {
  return Status(Code::unsupported,
                format("This device does not share {} with other users. Vulkan devices do.", what));
}

Status Device::not_cuda() {
  return Status(Code::unsupported, "The memory of this device has no CUDA address.");
}

Status Device::unlinked() {
  return Status(Code::unsupported, "This device has no links to devices of other processes.");
}

}  // namespace bowline::detail::device
