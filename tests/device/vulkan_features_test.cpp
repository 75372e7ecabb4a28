// A Vulkan device that lacks what a kernel may be thought to need: features that the driver has are hidden, and not enabled.
#include <set>

#include "conformance/suite.h"
#include "need.h"
#include "open_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"
#include "vulkan_shaders.h"

namespace bowline::vulkan {
namespace {

using test::must;

std::shared_ptr<device::OpenDevice> open_without(void (*hide)(PhysicalDevice&)) {
  DeviceInfo info;
  info.name = "vulkan:0";
  DeviceOptions options;
  options.cache_folder.clear();
  return std::make_shared<device::OpenDevice>(std::move(info),
                                              must(OpenVulkan::open(0, options, hide)), 0);
}

// What SPIR-V calls the features that a device is opened with: numbers of 16 and 8 bits are read and written, never computed with.
TEST(VulkanShaders, NeedNoArithmeticOf16Bits) {
  enum : uint32_t {
    kShader = 1,
    kInt64 = 11,
    kAddresses = 5347,
    kStorage16 = 4433,
    kStorage8 = 4448
  };
  constexpr uint32_t kFirstGroup = 61, kLastGroup = 68;  // GroupNonUniform and its parts
  std::set<uint32_t> seen;
  for (size_t s = 0; s < kShaderCount; ++s) {
    const uint32_t* words = kShaders[s].words;
    const size_t count = kShaders[s].bytes / 4;
    for (size_t at = 5; at < count && words[at] >> 16 > 0; at += words[at] >> 16) {
      if ((words[at] & 0xFFFF) == 17) {  // OpCapability
        seen.insert(words[at + 1]);
      }
    }
  }
  EXPECT_TRUE(seen.contains(kStorage16) && seen.contains(kShader)) << "the modules are read";
  std::erase_if(seen, [](uint32_t c) {
    return c == kShader || c == kInt64 || c == kAddresses || c == kStorage16 || c == kStorage8 ||
           (c >= kFirstGroup && c <= kLastGroup);
  });
  EXPECT_TRUE(seen.empty()) << "capability " << *seen.begin();
}

struct Hidden {
  const char* name;
  void (*hide)(PhysicalDevice&);
  std::vector<std::string> features;  // one of which a refusal names
};

class VulkanWithout : public testing::TestWithParam<Hidden> {};
INSTANTIATE_TEST_SUITE_P(
    Features, VulkanWithout,
    testing::Values(Hidden{"storage16",
                           [](PhysicalDevice& d) { d.has_16bit_storage = false; },
                           {"storageBuffer16BitAccess"}},
                    Hidden{"storage8_int64",
                           [](PhysicalDevice& d) { d.has_8bit_storage = d.has_int64 = false; },
                           {"storageBuffer8BitAccess", "shaderInt64"}}),
    [](const auto& p) { return std::string(p.param.name); });

// The cases of every operator, in every dtype: what does not run says which feature is missing; nothing else fails.
TEST_P(VulkanWithout, ComputesTheRest) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  const auto report = must(conformance::run("ops", open_without(GetParam().hide), {.quick = true}));
  std::set<std::string> named;
  for (const conformance::Failure& f : report.failures) {
    const auto feature = std::ranges::find_if(GetParam().features, [&](const std::string& name) {
      return f.what.find("lacks the feature " + name) != f.what.npos;
    });
    EXPECT_TRUE(feature != GetParam().features.end()) << f.where << ": " << f.what;
    named.insert(feature != GetParam().features.end() ? *feature : "");
  }
  EXPECT_EQ(named.size(), GetParam().features.size());
  EXPECT_GT(report.passed, 3000u);
}

// A model in 16 bits is refused with the node and the feature; cast to f32 it is trained.
TEST(VulkanWithoutStorage16, AModelIsCastToBeTrained) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  const bowline::Device device =
      Internals::device(open_without([](PhysicalDevice& d) { d.has_16bit_storage = false; }));
  Model m;
  const Parameter w =
      must(m.parameter("w", {3, 2}, Init::ones(), StorageRole::weight, DType::bf16));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::bf16, {2, 2});
  const Value y = g.named("product").op("Linear", {x, g.parameter(w)});
  g.output("loss", g.op("ReduceSum", {g.op("Mul", {y, y})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device));
  const Status refused = Trainer::create(m, device, test::plain_sgd(0.1f)).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("storageBuffer16BitAccess"), std::string::npos)
      << refused.message();
  EXPECT_NE(refused.message().find("node "), std::string::npos) << refused.message();
  must(m.cast(DType::f32));
  Trainer t = must(Trainer::create(m, device, test::plain_sgd(0.1f)));
  test::Floats in = {1, 2, 3, 4};
  const Tensor batch[] = {test::tensor("x", {2, 2}, in)};
  const auto report = must(t.micro_step(batch));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->loss, 3 * (9 + 49));
}

}  // namespace
}  // namespace bowline::vulkan
