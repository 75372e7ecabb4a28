#include "device/backend.h"

namespace bowline::detail::device {

Status Device::unshared(std::string_view what) {
  return Status(Code::unsupported,
                format("This device does not share {} with other users. Vulkan devices do.", what));
}

}  // namespace bowline::detail::device
