// Plans for Vulkan devices that this machine need not have.
#include <set>

#include "emulation/gpt2.h"
#include "generate/decoder_model.h"

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
  EXPECT_TRUE(amd.contains("matmul_units_bf16"));
  EXPECT_TRUE(amd.contains("attention_tile_plain"));
  const std::set<std::string> intel = kernels_of_a_step("planning:vulkan@arc770");
  EXPECT_FALSE(intel.contains("matmul_units_bf16"));
  EXPECT_TRUE(intel.contains("matmul_tile_plain"));
}

// Of a token with a context of 256.
uint64_t launches_of_a_token(Model& model, std::string& listing) {
  const Device planning = must(Device::open("planning:vulkan@rx7800xt"));
  EXPECT_OK(model.resize("cache.*", 256).status());
  EXPECT_OK(model.to(planning));
  const BoundDim length = {"kv_length", 256};
  const Session session = must(Session::create(model, planning, "decode", {&length, 1}));
  uint64_t launches = 0;
  listing.clear();
  for (const SegmentInfo& segment : must(session.describe()).segments) {
    launches += segment.name == "forward" ? segment.launches : 0;
    for (const RecordInfo& r : segment.records) {
      listing += "\n" + r.op;
      for (const std::string& kernel : r.kernels) {
        listing += " " + kernel;
      }
    }
  }
  return launches;
}

// The limits may only decrease.
TEST(VulkanPlans, LimitTheLaunchesOfAToken) {
  std::string listing;
  Gpt2 gpt(kGpt2Shape);
  gpt.add_decode();
  EXPECT_LE(launches_of_a_token(gpt.model, listing), 85u) << listing;
  DecoderShape shape = {.layers = 12,
                        .width = 768,
                        .heads = 12,
                        .kv_heads = 4,
                        .ffn = 2048,
                        .vocabulary = 32000,
                        .dtype = DType::bf16};
  Model llama = decoder_shapes(shape);
  EXPECT_LE(launches_of_a_token(llama, listing), 85u) << listing;
  shape.int8_cache = true;
  Model compact = decoder_shapes(shape);
  must(quantize(compact, "q4_0", "model.layers.*_proj.weight"));
  EXPECT_LE(launches_of_a_token(compact, listing), 85u) << listing;
}

TEST(VulkanPlans, AreRefusedForAnUnknownDevice) {
  const auto opened = Device::open("planning:vulkan@nothing");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("vulkan cannot plan for \"nothing\""), std::string::npos)
      << opened.status().message();
}

}  // namespace
}  // namespace bowline::test
