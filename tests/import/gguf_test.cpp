// GGUF models compute what transformers computes with the same values (tests/gguf/data, made by
// tools/make_golden/gguf_files.py).
#include "fixtures.h"
#include "gguf/read.h"

namespace bowline::test {
namespace {

std::string data(const std::string& file) { return BOWLINE_GGUF_DATA "/" + file; }

// The suffix of a Llama file, or an architecture and a suffix; and a device.
using GgufCase = std::tuple<std::string, const char*>;

class Gguf : public testing::TestWithParam<GgufCase> {};

// Computed in f32 as in transformers; quantized weights stay quantized. Tolerance: see
// models_test.cpp.
TEST_P(Gguf, LogitsAreThoseOfTransformers) {
  const auto& [name, device_name] = GetParam();
  BOWLINE_NEED(why_missing(device_name));
  const bool is_named = name.starts_with("gpt2_") || name.starts_with("gemma2_");
  const auto source = gguf::read(data((is_named ? "" : "llama_") + name + ".gguf"));
  ASSERT_TRUE(source.ok()) << source.status().message();
  auto built = build_model(source.value(), {.dtype = DType::f32});
  ASSERT_TRUE(built.ok()) << built.status().message();
  Model& model = built.value().model;
  const auto device = Device::open(device_name);
  ASSERT_TRUE(device.ok()) << device.status().message();
  ASSERT_FINE(model.to(device.value()));

  constexpr int64_t kBatch = 2, kSeq = 12, kVocabulary = 64;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kBatch * kSeq; ++i) {
    ids.push_back(i * 5 % kVocabulary);
  }
  const std::vector<BoundDim> dims = {{"batch", kBatch}, {"seq", kSeq}};
  auto session = Session::create(model, device.value(), "forward", dims);
  ASSERT_TRUE(session.ok()) << session.status().message();
  std::vector<float> logits(kBatch * kSeq * kVocabulary), right(logits.size());
  const Numbers tokens = numbers_of({kBatch, kSeq}, ids);
  const Tensor in[] = {tokens.tensor("tokens")};
  const Tensor out[] = {{"logits", DType::f32, {kBatch, kSeq, kVocabulary}, logits.data()}};
  ASSERT_FINE(session.value().run(in, out));
  std::ifstream file(data("logits_" + name + ".f32"), std::ios::binary);
  const auto bytes = std::as_writable_bytes(std::span(right));
  ASSERT_TRUE(file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes)));
  EXPECT_LT(difference(logits, right), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, Gguf,
                         testing::Combine(testing::Values("f32", "f16", "bf16", "q8_0", "q4_0",
                                                          "q4_1", "q4_k", "q6_k", "rope",
                                                          "gpt2_f32", "gpt2_q8_0", "gemma2_f32",
                                                          "gemma2_bf16", "gemma2_q8_0"),
                                          testing::Values("cpu", "vulkan:0")),
                         [](const auto& of) {
                           const std::string device = std::get<1>(of.param);
                           return std::get<0>(of.param) + "_" + device.substr(0, device.find(':'));
                         });

// Every tensor of every architecture has a Hugging Face name.
TEST(GgufNames, AreThoseOfTheArchitectures) {
  for (const char* name : {"bert", "gemma2", "gpt2", "llama", "qwen2", "qwen3"}) {
    const auto source = gguf::read(data(std::string("names_") + name + ".gguf"));
    ASSERT_TRUE(source.ok()) << source.status().message();
    const auto built = build_model(source.value(), {});
    ASSERT_TRUE(built.ok()) << name << ": " << built.status().message();
    EXPECT_EQ(built.value().model.metadata("architecture"), name);
  }
}

}  // namespace
}  // namespace bowline::test
