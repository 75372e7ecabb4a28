// Values of GGUF tensors: every type as in gguf.quants, rows in the order of Hugging Face, in byte
// ranges of any length.
#include "gguf/values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/float16.h"
#include "crafted.h"
#include "gguf/read.h"

namespace bowline::gguf {
namespace {

using import::Source;
using import::SourceTensor;

const std::string kValues = BOWLINE_GGUF_DATA;

const TensorEntry& tensor(const File& file, std::string_view name) {
  return *std::ranges::find(file.tensors, name, &TensorEntry::name);
}

std::vector<float> decoded(const TensorEntry& t) {
  std::vector<float> out(t.bytes.size() / t.type->bytes * t.type->block);
  for (size_t i = 0; i < out.size(); i += t.type->block) {
    t.type->decode(t.bytes.data() + i / t.type->block * t.type->bytes, &out[i]);
  }
  return out;
}

TEST(GgufValues, NumbersOfEveryTypeAreThoseOfThePackage) {
  const auto file = File::open(kValues + "/types.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const char* const type :
       {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}) {
    SCOPED_TRACE(type);
    const TensorEntry& t = tensor(*file.value(), type);
    EXPECT_EQ(t.type->name, type);
    const TensorEntry& e = tensor(*file.value(), std::string(type) + ".expected");
    EXPECT_EQ(t.shape, e.shape);
    EXPECT_EQ(decoded(t), decoded(e));
  }
}

// The value of each element encodes its name and position in Hugging Face.
TEST(GgufValues, NamesAndOrdersAreThoseOfHuggingFace) {
  for (const char* const architecture : {"llama", "qwen2", "qwen3", "gpt2", "bert"}) {
    SCOPED_TRACE(architecture);
    Result<Source> source = read(kValues + "/names_" + architecture + ".gguf");
    ASSERT_TRUE(source.ok()) << source.status().message();
    std::vector<SourceTensor>& tensors = source.value().tensors;
    std::ranges::sort(tensors, {}, &SourceTensor::name);
    for (size_t n = 0; n < tensors.size(); ++n) {
      const SourceTensor& t = tensors[n];
      std::vector<float> numbers(t.bytes / sizeof(float));
      ASSERT_TRUE(t.read(0, std::as_writable_bytes(std::span(numbers))).ok());
      size_t elements = 1;
      for (const int64_t dim : t.shape) {
        elements *= static_cast<size_t>(dim);
      }
      ASSERT_EQ(numbers.size(), elements) << t.name;
      for (size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(numbers[i], static_cast<float>(1000 * n + i)) << t.name << " at " << i;
      }
    }
  }
}

TEST(GgufValues, RunsOfAnyLengthAreTheSameBytes) {
  for (const char* const name : {"llama_f16", "llama_q8_0", "llama_q4_0", "llama_q4_1",
                                 "llama_q4_k", "llama_q6_k", "names_gpt2"}) {
    const Result<Source> source = read(kValues + "/" + name + ".gguf");
    ASSERT_TRUE(source.ok()) << source.status().message();
    for (const SourceTensor& t : source.value().tensors) {
      std::vector<std::byte> whole(t.bytes), pieces(t.bytes);
      ASSERT_TRUE(t.read(0, whole).ok());
      size_t length = 1;
      for (size_t at = 0; at < pieces.size(); at += length, length = length * 3 % 1021) {
        length = std::min(length, pieces.size() - at);
        ASSERT_TRUE(t.read(at, std::span(pieces).subspan(at, length)).ok());
      }
      EXPECT_EQ(whole, pieces) << name << " " << t.name;
      EXPECT_FALSE(t.read(t.bytes - 1, std::span(pieces).first(2)).ok());
      EXPECT_FALSE(t.read(UINT64_MAX, std::span(pieces).first(2)).ok());
      EXPECT_TRUE(t.read(t.bytes, {}).ok());
    }
  }
}

TEST(GgufValues, QuantizedValuesStayUnlessTheirBlocksLieAcross) {
  for (const auto& [name, encoding] :
       {std::pair("llama_q8_0", "q8_0"), std::pair("llama_q4_0", "q4_0"),
        std::pair("llama_q4_1", "q4_1"), std::pair("llama_f16", "plain"),
        std::pair("gpt2_q8_0", "q8_0")}) {
    const Result<Source> source = read(kValues + "/" + name + ".gguf");
    ASSERT_TRUE(source.ok());
    size_t reported = 0;
    for (const std::string& note : source.value().notes) {
      reported += note.find("dequantized to f32") != std::string::npos;
    }
    // The matrices of GPT-2 have their blocks along the other axis.
    const bool turned = std::string_view(name) == "gpt2_q8_0";
    EXPECT_EQ(reported, turned ? 1u : 0u) << name;
    for (const SourceTensor& t : source.value().tensors) {
      if (t.shape.size() == 2 && (!turned || t.name == "transformer.wte.weight")) {
        EXPECT_EQ(t.encoding, encoding) << t.name;
        EXPECT_EQ(t.dtype, std::string_view(name) == "llama_f16" ? DType::f16 : DType::f32);
      }
    }
  }
}

// Files keep norms in f32 beside 16-bit matrices. If 16 bits represent the norms exactly, the model
// has one dtype.
TEST(GgufValues, VectorsTakeTheDtypeOfMatricesThatHoldThem) {
  for (const bool fits : {true, false}) {
    Crafted file;
    file.head(2, 1 + 6);
    file.key("general.architecture", ValueType::text).text("qwen2");
    for (const char* const key : {"block_count", "context_length", "embedding_length",
                                  "feed_forward_length", "attention.head_count"}) {
      file.key(std::string("qwen2.") + key, ValueType::u32).put(uint32_t{2});
    }
    file.key("qwen2.attention.layer_norm_rms_epsilon", ValueType::f32).put(1e-5f);
    file.tensor("token_embd.weight", {2, 1}, 30, 0).tensor("output_norm.weight", {2}, 0, 32);
    file.data(32).put(1.5f).put(fits ? -0.0f : 1.0f + 0x1p-9f);
    const Result<Source> source = read(file.span(), "crafted.gguf");
    ASSERT_TRUE(source.ok()) << source.status().message();
    const SourceTensor& norm = source.value().tensors[1];
    EXPECT_EQ(norm.dtype, fits ? DType::bf16 : DType::f32);
    ASSERT_EQ(norm.bytes, fits ? 4u : 8u);
    if (fits) {
      uint16_t bits[2];
      ASSERT_TRUE(norm.read(0, std::as_writable_bytes(std::span(bits))).ok());
      EXPECT_EQ(bits[0], 0x3FC0);
      EXPECT_EQ(bits[1], 0x8000);
    }
  }
}

TEST(GgufValues, NumbersOf16Bits) {
  for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = to_f32(f16{half});
    if (!std::isnan(wide)) {
      ASSERT_EQ(from_f32<f16>(wide).bits, half);
    } else {
      ASSERT_TRUE(std::isnan(to_f32(f16{from_f32<f16>(wide).bits})));
    }
    const float b = to_f32(bf16{half});
    if (!std::isnan(b)) {
      ASSERT_EQ(from_f32<bf16>(b).bits, half);
    }
  }
  EXPECT_EQ(from_f32<f16>(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(from_f32<f16>(65520.0f).bits, 0x7C00);
  EXPECT_EQ(from_f32<f16>(1 + 0x1p-11f).bits, 0x3C00);  // ties to even
  EXPECT_EQ(from_f32<f16>(1 + 0x3p-11f).bits, 0x3C02);
  EXPECT_EQ(from_f32<f16>(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(from_f32<f16>(0x1.8p-25f).bits, 0x0001);
  EXPECT_EQ(from_f32<bf16>(1 + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(from_f32<bf16>(1 + 0x3p-8f).bits, 0x3F82);
}

}  // namespace
}  // namespace bowline::gguf
