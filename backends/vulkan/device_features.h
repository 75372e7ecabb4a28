// The features and extensions that a logical device enables.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "physical_device.h"

namespace bowline::detail::vulkan {

// All features and extensions of a device that the kernels may use.
class DeviceFeatures {
 public:
  explicit DeviceFeatures(const PhysicalDevice& physical);
  DeviceFeatures(const DeviceFeatures&) = delete;
  DeviceFeatures& operator=(const DeviceFeatures&) = delete;

  // For VkDeviceCreateInfo.
  const VkPhysicalDeviceFeatures2* first() const { return &features_; }
  std::span<const char* const> extensions() const { return extensions_; }
  // The names of the features. Without the needed ones, the device cannot be used.
  std::span<const std::string> needed() const { return needed_; }
  std::span<const std::string> wanted() const { return wanted_; }

 private:
  VkPhysicalDeviceVulkan12Features vulkan12_;
  VkPhysicalDevice16BitStorageFeatures half_;
  VkPhysicalDeviceSubgroupSizeControlFeatures control_;
  CooperativeMatrixFeatures matrices_;
  CooperativeMatrix2Features of_workgroups_;
  Bfloat16Features bf16_;
  VkPhysicalDeviceFeatures2 features_;
  std::vector<const char*> extensions_;
  std::vector<std::string> needed_;
  std::vector<std::string> wanted_;
};

// Removes what a logical device of the program does not enable: `info` made it.
// Returns the name of a needed feature that it lacks, or an empty text.
std::string restrict_to(const VkDeviceCreateInfo& info, PhysicalDevice* physical);

}  // namespace bowline::detail::vulkan
