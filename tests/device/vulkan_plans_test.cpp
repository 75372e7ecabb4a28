// Plans for Vulkan devices that this machine need not have.
#include <set>

#include "emulation/launches.h"

namespace bowline::test {
namespace {

// The kernels of a training step in bf16.
std::set<std::string> kernels_of_a_step(const char* device) {
  const Device planning = must(Device::open(device));
  TinyLm lm = tiny_lm();
  EXPECT_OK(lm.model.to(planning));
  TrainOptions options = adamw(lm);
  options.precision.compute_dtype = DType::bf16;
  const Trainer trainer = must(Trainer::create(lm.model, planning, options));
  std::set<std::string> out;
  for (const SegmentInfo& segment : must(trainer.describe()).segments) {
    EXPECT_GE(segment.launches, segment.records.empty() ? 0u : 1u);
    for (const RecordInfo& r : segment.records) {
      EXPECT_EQ(r.kernels.empty(), r.kind != RecordInfo::Kind::op) << r.op;
      out.insert(r.kernels.begin(), r.kernels.end());
    }
  }
  return out;
}

TEST(VulkanPlans, HaveTheKernelsOfTheDevice) {
  const std::set<std::string> amd = kernels_of_a_step("planning:vulkan@rx7800xt");
  EXPECT_TRUE(amd.contains("matmul_units_store_bf16"));
  EXPECT_TRUE(amd.contains("matmul_units_follow_bf16"));
  EXPECT_TRUE(amd.contains("attention_tile_plain"));
  const std::set<std::string> intel = kernels_of_a_step("planning:vulkan@arc770");
  EXPECT_FALSE(intel.contains("matmul_units_store_bf16"));
  EXPECT_TRUE(intel.contains("matmul_tile_plain"));
  const std::set<std::string> nvidia = kernels_of_a_step("planning:vulkan@rtx4070");
  EXPECT_TRUE(nvidia.contains("matmul_units_store_bf16"));
  EXPECT_FALSE(nvidia.contains("matmul_units_follow_bf16"));
}

TEST(VulkanPlans, LimitTheLaunchesOfAToken) {
  limit_launches_of_a_token("planning:vulkan@rx7800xt", 85, 85);
}

// The limits may only decrease. On NVIDIA, what follows a product has a launch of its own: 48 more.
TEST(VulkanPlans, LimitTheLaunchesOfAStep) {
  for (const auto& [device, most] :
       {std::pair("planning:vulkan@rtx4070", 590u), {"planning:vulkan@rx7800xt", 542u}}) {
    const Device planning = must(Device::open(device));
    Gpt2 gpt(kGpt2Shape);
    EXPECT_OK(gpt.model.to(planning));
    TrainOptions o;
    o.dims = {{"batch", 1}, {"seq", 256}};
    o.precision.compute_dtype = DType::bf16;
    const Trainer trainer = must(Trainer::create(gpt.model, planning, o));
    Launches step;
    for (const SegmentInfo& segment : must(trainer.describe()).segments) {
      if (segment.name == "accumulate" || segment.name == "update") {
        add_records(segment, step);
      }
    }
    EXPECT_LE(step.count, most) << device << "\n" << step.listing;
  }
}

TEST(VulkanPlans, AreRefusedForAnUnknownDevice) {
  const auto opened = Device::open("planning:vulkan@nothing");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("vulkan cannot plan for \"nothing\""), std::string::npos)
      << opened.status().message();
}

}  // namespace
}  // namespace bowline::test
