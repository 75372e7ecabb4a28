// The self test of a device: small problems whose results are known. A variant of the kernels with
// which a problem fails is switched off, and other kernels replace it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "physical_device.h"

namespace bowline::detail::vulkan {

class OpenVulkan;

struct SwitchedOff {
  std::string variant;
  std::string reason;
};

// Sets of variants of which one may be the reason of a failure: each variant that the device uses,
// and at last all of them.
std::vector<std::vector<std::string_view>> suspects(const PhysicalDevice& device);
// Uses the device as if it did not have what the variant needs. An unknown name changes nothing.
void switch_off(std::string_view variant, PhysicalDevice* device);

struct TestFailure {
  size_t problem = 0;  // in the order of the test
  std::string what;    // a sentence
};
// Runs the problems until one fails.
std::optional<TestFailure> first_failure(OpenVulkan& device);

// The result that an earlier process stored in the cache folder, for this device, driver and
// version of Bowline. Nothing: there is none, or it is damaged. `device` has all variants.
std::optional<std::vector<SwitchedOff>> read_self_test(const std::string& folder,
                                                       const PhysicalDevice& device);
// Stores the result. A failure costs only time: the next process tests again.
void save_self_test(const std::string& folder, const PhysicalDevice& device,
                    const std::vector<SwitchedOff>& result);

}  // namespace bowline::detail::vulkan
