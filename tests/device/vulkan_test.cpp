// The Vulkan backend where drivers and kernels are wrong, without a driver.
#include <gtest/gtest.h>

#include <cstring>

#include "device.h"
#include "kernel.h"

namespace bowline::vulkan {
namespace {

int destroyed = 0;

VKAPI_ATTR VkResult VKAPI_CALL make_device(VkPhysicalDevice, const VkDeviceCreateInfo*,
                                           const VkAllocationCallbacks*, VkDevice* device) {
  static int object = 0;
  *device = reinterpret_cast<VkDevice>(&object);
  return VK_SUCCESS;
}
VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice, const VkAllocationCallbacks*) { ++destroyed; }

// Only vkDestroyDevice is there.
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find(VkDevice, const char* name) {
  return std::strcmp(name, "vkDestroyDevice") == 0
             ? reinterpret_cast<PFN_vkVoidFunction>(destroy_device)
             : nullptr;
}
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_nothing(VkDevice, const char*) { return nullptr; }

TEST(Vulkan, ADriverThatLacksFunctionsIsClosedAtOnce) {
  Loader loader;
  loader.vkCreateDevice = make_device;
  for (const auto get_proc : {find, find_nothing}) {
    loader.vkGetDeviceProcAddr = get_proc;
    destroyed = 0;
    {
      Device device(loader, PhysicalDevice{});
      EXPECT_EQ(device.open(), VK_ERROR_INCOMPATIBLE_DRIVER);
      EXPECT_EQ(device.handle(), VkDevice{});
    }
    EXPECT_EQ(destroyed, get_proc == find ? 1 : 0);
  }
}

TEST(Vulkan, AKernelThatPushesTooMuchIsRefused) {
  PhysicalDevice physical;
  physical.subgroup_size = 4;
  device::Program program;
  program.records.emplace_back().op = Op::Add;
  for (const bool too_much : {false, true}) {
    CommandList list;
    Launch launch(physical, program, {}, 0, false, 0, &list);
    Push push;
    for (uint32_t i = 0; i < kPushBytes / 4 + (too_much ? 1 : 0); ++i) {
      push.u32(i);
    }
    launch.dispatch(0, {}, push, launch.over_elements(1), 0, 0);
    EXPECT_EQ(list.status.message(),
              too_much ? "The kernel of Add pushes 132 bytes; there is room for 128." : "");
  }
}

}  // namespace
}  // namespace bowline::vulkan
