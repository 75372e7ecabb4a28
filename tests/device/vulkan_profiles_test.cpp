// The Vulkan backend on devices with the limits of phones, Macs and graphics cards: a fake driver
// opens, plans and records, and computes nothing.
#include <algorithm>

#include "fake_vulkan.h"
#include "open_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::detail::vulkan {
namespace {

using profiles::Profile;
using test::must;

Result<std::unique_ptr<device::Device>> open_fake(void (*hide)(PhysicalDevice&) = nullptr) {
  return OpenVulkan::open(0, {}, hide, fake::get_proc);
}

const Profile& named(std::string_view name) {
  return *std::ranges::find(profiles::kProfiles, name, &Profile::name);
}

class VulkanProfile : public testing::TestWithParam<Profile> {};
INSTANTIATE_TEST_SUITE_P(Devices, VulkanProfile, testing::ValuesIn(profiles::kProfiles),
                         [](const auto& p) { return test::test_name(p.param.name); });

TEST_P(VulkanProfile, IsRefusedWithTheReasonOrRecordsWhatItsLimitsAllow) {
  fake::reset(GetParam());
  auto opened = open_fake();
  ASSERT_EQ(opened.ok(), std::string_view(GetParam().refusal).empty());
  if (!opened.ok()) {
    EXPECT_EQ(opened.status().code(), Code::unsupported);
    EXPECT_EQ(opened.status().message(),
              format("Vulkan device 0 cannot be used. {}", GetParam().refusal));
    return;
  }
  const bowline::Device device = test::wrap("fake", std::move(opened).value());
  // 16-bit values too, which some of the devices cannot access.
  for (const DType compute : {DType::f32, DType::f16}) {
    test::TinyLm lm = test::tiny_lm();
    TrainOptions options = test::adamw(lm);
    options.precision.compute_dtype = compute;
    ASSERT_OK(lm.model.to(device));
    const Trainer trainer = must(Trainer::create(lm.model, device, options));
  }
  EXPECT_GT(fake::driver().dispatches, 100u);
  EXPECT_EQ(fake::driver().faults, std::vector<std::string>());
  const bool can_require = GetParam().subgroup.max != 0;
  EXPECT_EQ(fake::driver().required_subgroups > 10, can_require);
  EXPECT_GT(fake::driver().free_subgroups, 10u);
}

TEST(VulkanProfiles, EachSubgroupOperationOfTheKernelsIsAskedFor) {
  for (const auto& [flag, name] : {std::pair(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT, "arithmetic"),
                                   {VK_SUBGROUP_FEATURE_BALLOT_BIT, "ballot"},
                                   {VK_SUBGROUP_FEATURE_SHUFFLE_BIT, "shuffle"}}) {
    fake::reset(named("Mali-G715"));
    fake::driver().lacking = static_cast<VkSubgroupFeatureFlags>(flag);
    const auto opened = open_fake();
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().message(),
              format("Vulkan device 0 cannot be used. Its driver lacks the subgroup operations "
                     "'{}' in compute shaders.",
                     name));
  }
}

TEST(VulkanProfiles, OnlyADiscreteDeviceHasTwinsOfIo) {
  for (const auto& [name, twins] :
       {std::pair("GeForce RTX 4070", true), {"Apple M1, MoltenVK", false}}) {
    fake::reset(named(name));
    const auto device = must(open_fake());
    fake::driver().memory_types.clear();
    const device::Buffer io = must(device->allocate(64, device::MemoryKind::io));
    const std::vector<uint32_t> expected =
        twins ? std::vector<uint32_t>{1, 0} : std::vector<uint32_t>{0};
    EXPECT_EQ(fake::driver().memory_types, expected) << name;
    device->free(io);
  }
}

// A chain of products in a program of its own.
struct Chain {
  explicit Chain(device::Device& device, uint32_t length) {
    program.slots = device::kFirstStorageSlot;
    for (uint32_t i = 0; i < length; ++i) {
      device::Record& r = program.records.emplace_back();
      r.op = Op::MatMul;
      r.level = i;
      r.node = 100 + i;
      r.attributes = Attributes::of(file::MatMulAttributesT{});
      r.inputs.resize(2);
      r.outputs.resize(1);
      for (device::Operand* o : {&r.inputs[0], &r.inputs[1], &r.outputs[0]}) {
        o->shape = Shape{1024, 1024};
      }
      r.outputs[0].offset = uint64_t{1024} * 1024 * sizeof(float);
    }
    for (uint64_t bytes : {uint64_t{8} << 20, uint64_t{64}, uint64_t{64}}) {
      buffers.push_back(must(device.allocate(bytes, device::MemoryKind::device)));
    }
  }
  std::unique_ptr<device::Recording> record(device::Device& device) const {
    return must(device.record(program, buffers));
  }
  device::Program program;
  std::vector<device::Buffer> buffers;
};

Status run(device::Device& device, device::Recording& recording) {
  device::Recording* const all[] = {&recording};
  const Status submitted = device.submit(all);
  return submitted.ok() ? device.wait() : Status(submitted);
}

TEST(VulkanProfiles, ASubmissionThatHangsIsReportedWithItsNodes) {
  fake::reset(named("Apple M1, MoltenVK"));
  const auto device = must(open_fake());
  const Chain chain(*device, 3);
  const auto recording = chain.record(*device);
  EXPECT_OK(run(*device, *recording));
  fake::driver().hangs = true;
  const Status hung = run(*device, *recording);
  EXPECT_EQ(hung.code(), Code::device_lost);
  EXPECT_EQ(hung.message(),
            "The Vulkan device hangs: it has been running nodes 100 (MatMul) to 102 (MatMul) for "
            "more than 30 s.\n- While waiting for the device.");
  EXPECT_EQ(device->wait().code(), Code::device_lost);
}

TEST(VulkanProfiles, SubmissionsAreCutByTheMeasuredSpeed) {
  const auto submissions_after = [](double ms) {
    fake::reset(named("Apple M1, MoltenVK"));
    const auto device = must(open_fake());
    const Chain chain(*device, 20);
    fake::driver().slowness = ms;
    const auto first = chain.record(*device);
    EXPECT_OK(run(*device, *first));
    const uint64_t before = fake::driver().submitted;
    const auto second = chain.record(*device);
    EXPECT_OK(run(*device, *second));
    return fake::driver().submitted - before;
  };
  const uint64_t few = submissions_after(100);  // about the estimate
  const uint64_t many = submissions_after(1000);
  EXPECT_GE(many, 5 * few);
}

}  // namespace
}  // namespace bowline::detail::vulkan
