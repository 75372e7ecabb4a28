// The Vulkan backend with faulty drivers and kernels, without a driver.
#include <gtest/gtest.h>

#include <cstring>

#include "device.h"
#include "kernel.h"
#include "shader_code.h"
#include "spirv.h"
#include "stream.h"
#include "word_elements.h"

namespace bowline::detail::vulkan {
namespace {

int destroyed = 0;

VKAPI_ATTR VkResult VKAPI_CALL make_device(VkPhysicalDevice, const VkDeviceCreateInfo*,
                                           const VkAllocationCallbacks*, VkDevice* device) {
  static int object = 0;
  *device = reinterpret_cast<VkDevice>(&object);
  return VK_SUCCESS;
}
VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice, const VkAllocationCallbacks*) { ++destroyed; }

// Only vkDestroyDevice exists.
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
    launch.dispatch(0, {}, push, launch.over_elements(1), {});
    EXPECT_EQ(list.status.message(),
              too_much ? "The kernel of Add pushes 132 bytes; there is room for 128." : "");
  }
}

TEST(Vulkan, ASwitchOnAConstantKeepsTheCaseThatIsChosen) {
  const auto word = [](uint32_t words, uint32_t operation) { return words << 16 | operation; };
  std::vector<uint32_t> module = {0x07230203,  0x10500, 0, 30, 0,  // the header
                                  word(4, 71), 1,       1, 3,      // OpDecorate 1 SpecId 3
                                  word(4, 50), 2,       1, 5,      // OpSpecConstant, default 5
                                  word(4, 43), 2,       9, 5};     // OpConstant
  const std::vector<uint32_t> chosen = {1, 20, 5, 21, 6, 22};      // on the specialization constant
  const std::vector<uint32_t> other = {9, 20, 5, 21, 6, 22};
  for (const auto& operands : {chosen, other}) {
    module.push_back(word(7, 251));
    module.insert(module.end(), operands.begin(), operands.end());
  }
  const auto reached = [&](std::vector<uint32_t> constants) {
    const std::vector<uint32_t> out = chosen_cases(module, constants);
    const size_t at = module.size() - 14;
    EXPECT_EQ(out.size(), module.size() - 4);
    EXPECT_TRUE(
        std::equal(module.begin(), module.begin() + static_cast<ptrdiff_t>(at), out.begin()));
    EXPECT_TRUE(std::equal(module.end() - 7, module.end(), out.end() - 7));
    EXPECT_EQ(out[at], word(3, 251));
    EXPECT_EQ(out[at + 1], 1u);
    return out[at + 2];
  };
  EXPECT_EQ(reached({}), 21u);         // the default of the constant
  EXPECT_EQ(reached({0, 0, 0}), 21u);  // there is no value for number 3
  EXPECT_EQ(reached({0, 0, 0, 6}), 22u);
  EXPECT_EQ(reached({0, 0, 0, 7}), 20u);  // the default of the switch
}

// The shaders leave no such bits, so no result could show an error.
TEST(Vulkan, WhatIsMadeNarrowInAWordLosesItsUpperBits) {
  const auto word = [](uint32_t words, uint32_t operation) { return words << 16 | operation; };
  const std::vector<uint32_t> module = {0x07230203,   0x10500, 0,  30, 0,  // the header
                                        word(4, 21),  1,       32, 0,      // OpTypeInt
                                        word(4, 21),  2,       16, 0,      //
                                        word(4, 113), 2,       3,  4};     // OpUConvert 4
  const std::vector<uint32_t> out = elements_in_words(module, {true, false});
  uint32_t mask = 0;
  spirv::for_each_instruction(out, [&](spirv::Instruction i) {
    if (spirv::operation(i) == spirv::kConstant && i[3] == 0xffff) {
      mask = i[2];
    }
  });
  const std::vector<uint32_t> expected = {word(5, 199), 1, 3, 4, mask};  // OpBitwiseAnd
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.end() - 5, out.end()));
}

// A software driver runs dispatches in order and needs no barriers, so the test inspects the
// commands.
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
  add(Kind::op, 0);  // runs with the first
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

// On other devices shaders write only the bytes of their elements.
TEST(Vulkan, ATransferInsideOfWordsRunsAloneWhereShadersWriteWords) {
  constexpr uint64_t kInsideWords[][3] = {{2, 8, 12}, {4, 2, 12}, {4, 8, 2}};
  const device::Program program;
  const auto commands = [&](bool has_16, bool has_8, uint64_t to, uint64_t from, uint64_t bytes) {
    PhysicalDevice physical;
    physical.has_16bit_storage = has_16;
    physical.has_8bit_storage = has_8;
    CommandList list;
    Launch launch(physical, program, {}, 0, false, 0, &list);
    launch.copy({{}, to, 0}, {{}, from, 0}, bytes);
    std::string text;
    for (const Command& c : list.commands) {
      text += c.kind == Command::Kind::barrier ? "|" : "copy";
    }
    return text;
  };
  EXPECT_EQ(commands(false, false, 4, 8, 12), "copy");
  for (const auto& [to, from, bytes] : kInsideWords) {
    EXPECT_EQ(commands(false, true, to, from, bytes), "|copy|");
    EXPECT_EQ(commands(true, false, to, from, bytes), "|copy|");
    EXPECT_EQ(commands(true, true, to, from, bytes), "copy");
  }
}

}  // namespace
}  // namespace bowline::detail::vulkan
