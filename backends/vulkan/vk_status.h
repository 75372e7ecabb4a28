// Converts a VkResult to a Status.
#pragma once

#include <vulkan/vulkan_core.h>

#include "base/status.h"
#include "bowline.h"

namespace bowline::detail::vulkan {

// `doing` completes the sentence "While <doing>". `bytes` is the requested size, for memory
// allocations.
inline Status to_status(VkResult result, std::string_view doing, uint64_t bytes = 0) {
  switch (result) {
    case VK_SUCCESS:
      return {};
    case VK_ERROR_DEVICE_LOST:
      return Status(Code::device_lost, format("The Vulkan device is lost.\n- While {}.", doing));
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return Status(
          Code::out_of_memory,
          format("The Vulkan device has no memory left ({} bytes requested).\n- While {}.", bytes,
                 doing));
    case VK_ERROR_INITIALIZATION_FAILED:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return Status(Code::unsupported,
                    format("The Vulkan driver refuses (VkResult {}).\n- While {}.",
                           static_cast<int>(result), doing));
    default:
      return Status(Code::internal, format("A Vulkan call fails (VkResult {}).\n- While {}.",
                                           static_cast<int>(result), doing));
  }
}

}  // namespace bowline::detail::vulkan
