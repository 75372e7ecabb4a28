// The Vulkan backend where drivers and kernels are wrong, without a driver.
#include <gtest/gtest.h>

#include <cstring>

#include "device.h"
#include "kernel.h"
#include "stream.h"

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

// A driver in software runs dispatches one after the other and needs no barrier, so that only the commands show them.
TEST(Vulkan, ABarrierStandsBeforeEachLevelAndIteration) {
  PhysicalDevice physical;
  physical.subgroup_size = 4;
  using Kind = device::Record::Kind;
  device::Program program;
  program.slots = device::kFirstStorageSlot;
  const auto add = [&](Kind kind, uint32_t level) {
    device::Record& r = program.records.emplace_back();
    r.kind = kind;
    r.level = level;
    r.count = 2;
    if (kind == Kind::op) {
      r.op = Op::Add;
      r.inputs.resize(2);
      r.outputs.resize(1);
      for (device::Operand* o : {&r.inputs[0], &r.inputs[1], &r.outputs[0]}) {
        o->shape = Shape{8};
      }
    }
  };
  add(Kind::op, 0);
  add(Kind::op, 1);
  add(Kind::op, 0);  // run with the first
  add(Kind::repeat_begin, 0);
  add(Kind::op, 0);
  add(Kind::op, 0);
  add(Kind::repeat_end, 0);
  add(Kind::op, 1);
  const Buffer buffer;
  const std::vector<const Buffer*> slots(program.slots, &buffer);
  CommandList list;
  const Status s = lower(physical, program, slots, &list);
  ASSERT_TRUE(s.ok()) << s.message();
  std::string text;
  for (const Command& c : list.commands) {
    text += c.kind == Command::Kind::barrier ? "|" : std::to_string(c.record);
  }
  EXPECT_EQ(text, "|02|1|45|45|7");
}

}  // namespace
}  // namespace bowline::vulkan
