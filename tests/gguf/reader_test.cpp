// The GGUF reader. Damaged, hostile and unsupported files give a Status with the position, never a
// crash or a large allocation. Valid files give what the package gguf reads.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "crafted.h"
#include "gguf/metadata.h"
#include "gguf/read.h"

namespace bowline::gguf {
namespace {

using import::Source;
using import::SourceTensor;

using nlohmann::json;

const std::string kData = BOWLINE_GGUF_DATA;

void expect_refused(const Status& status, Code code, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok()) << "The file was read.";
  EXPECT_EQ(name_of(status.code()), name_of(code)) << status.message();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

void expect_refused(const Crafted& file, const std::vector<std::string>& words,
                    Code code = Code::bad_file) {
  expect_refused(File::parse(file.span()).status(), code, words);
}

std::string bytes_of(const std::string& name) {
  std::ifstream file(kData + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GgufReader, RefusesWhatIsNoGguf) {
  expect_refused(Crafted{}, {"does not begin with \"GGUF\""});
  expect_refused(Crafted{"GGML"}, {"does not begin"});
  expect_refused(Crafted{"GGUF"}, {"ends within 4 bytes at offset 4"});
  expect_refused(Crafted().head(0, 0, 1), {"version 1"}, Code::unsupported);
  expect_refused(Crafted().head(0, 0, 4), {"version 4"}, Code::unsupported);
  expect_refused(Crafted().head(0, 0, 0x03000000), {"Big-endian"}, Code::unsupported);
}

TEST(GgufReader, RefusesCountsThatTheFileCannotHold) {
  for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 32, UINT64_MAX}) {
    expect_refused(Crafted().head(0, count), {std::to_string(count) + " keys"});
    expect_refused(Crafted().head(count, 0), {std::to_string(count) + " tensors"});
    Crafted texts;
    texts.head(0, 1).key("a", ValueType::array).put(uint32_t{8}).put(count);
    expect_refused(texts, {"key \"a\"", std::to_string(count) + " elements"});
    Crafted numbers;
    numbers.head(0, 1).key("a", ValueType::array).put(uint32_t{10}).put(count);
    expect_refused(numbers, {"key \"a\"", std::to_string(count) + " elements"});
  }
}

TEST(GgufReader, RefusesLengthsThatLeaveTheFile) {
  for (const uint64_t length : {uint64_t{100}, UINT64_MAX - 7, UINT64_MAX}) {
    expect_refused(Crafted().head(0, 1).put(length).data(64), {"ends within"});
    expect_refused(Crafted().head(0, 1).key("a", ValueType::text).put(length),
                   {"key \"a\"", "ends within"});
    Crafted texts;
    texts.head(0, 1).key("a", ValueType::array).put(uint32_t{8}).put(uint64_t{1}).put(length);
    expect_refused(texts, {"key \"a\"", "ends within"});
  }
}

TEST(GgufReader, RefusesValuesThatAreNone) {
  expect_refused(Crafted().head(0, 1).text("a").put(uint32_t{13}).data(8),
                 {"13 is not a value type"});
  Crafted nested;
  nested.head(0, 1).key("a", ValueType::array).put(uint32_t{9}).put(uint64_t{1}).data(64);
  expect_refused(nested, {"Arrays of arrays"});
  expect_refused(Crafted().head(0, 1).key("", ValueType::u8).data(8), {"key at offset 24"});
  expect_refused(Crafted().head(0, 1).key("a\xff", ValueType::u8).data(8), {"not valid UTF-8"});
  Crafted twice;
  twice.head(0, 2).key("a", ValueType::u8).put('x').key("a", ValueType::u8).put('y');
  expect_refused(twice, {"two keys \"a\""});
}

TEST(GgufReader, RefusesAnAlignmentThatIsNone) {
  for (const uint32_t alignment : {0u, 3u, 1u << 21, UINT32_MAX}) {
    Crafted file;
    file.head(0, 1).key("general.alignment", ValueType::u32).put(alignment);
    expect_refused(file, {"alignment", "power of two"});
  }
  Crafted text;
  text.head(0, 1).key("general.alignment", ValueType::text).text("32");
  expect_refused(text, {"alignment"});
}

TEST(GgufReader, RefusesShapesThatAreNone) {
  const auto of = [](std::initializer_list<uint64_t> dims, uint32_t type) {
    return Crafted().head(1, 0).tensor("w", dims, type, 0).data(64);
  };
  expect_refused(of({}, 0), {"reading tensor \"w\"", "rank is 0"});
  expect_refused(of({1, 1, 1, 1, 1}, 0), {"rank is 5"});
  expect_refused(of({0}, 0), {"Dim 0 is 0"});
  expect_refused(of({uint64_t{1} << 32, uint64_t{1} << 32}, 0), {"Dim 1", "too many"});
  expect_refused(of({UINT64_MAX}, 0), {"Dim 0"});
  expect_refused(of({uint64_t{1} << 62}, 0), {"in bytes overflows"});
  expect_refused(of({48, 2}, 8), {"Rows of 48", "block size 32", "Q8_0"});
  expect_refused(of({32}, 11), {"Rows of 32", "block size 256", "Q3_K"});
  expect_refused(of({256}, 16), {"IQ2_XXS", "F32, F16"}, Code::unsupported);
  expect_refused(of({32}, 4711), {"type 4711"}, Code::unsupported);
}

TEST(GgufReader, RefusesBytesThatAreNotThere) {
  const auto two = [](uint64_t first, uint64_t second, size_t bytes) {
    return Crafted().head(2, 0).tensor("v", {8}, 0, first).tensor("w", {8}, 0, second).data(bytes);
  };
  expect_refused(two(0, 32, 63), {"\"w\" has 32 bytes at offset 32"});
  expect_refused(two(0, 96, 64), {"\"w\"", "offset 96"});
  expect_refused(two(0, UINT64_MAX - 31, 64), {"\"w\""});
  expect_refused(two(0, 16, 64), {"16 of tensor \"w\"", "multiple of 32"});
  const auto shared = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t second) {
    return Crafted().head(2, 0).tensor("v", {16}, 0, 0).tensor("w", dims, type, second).data(128);
  };
  expect_refused(shared({16}, 0, 32), {"\"v\" and \"w\" overlap"});
  expect_refused(shared({8}, 0, 0), {"overlap"});
  expect_refused(shared({16}, 1, 0), {"overlap"});
  EXPECT_TRUE(File::parse(shared({16}, 0, 0).span()).ok()) << "a tie";
  EXPECT_TRUE(File::parse(two(32, 0, 64).span()).ok());
  Crafted twice;
  twice.head(2, 0).tensor("v", {8}, 0, 0).tensor("v", {8}, 0, 32).data(64);
  expect_refused(twice, {"two tensors \"v\""});
}

TEST(GgufReader, EveryShorterFileIsRefused) {
  const std::string whole = bytes_of("llama_q4_0.gguf");
  ASSERT_FALSE(whole.empty());
  for (size_t length = 0; length < whole.size(); length += length < 4000 ? 1 : 97) {
    const std::string cut = whole.substr(0, length);
    EXPECT_FALSE(File::parse(std::as_bytes(std::span(cut))).ok()) << length;
  }
}

TEST(GgufReader, RefusesWhatIsNoRegularFile) {
  expect_refused(read(kData).status(), Code::io_error, {"not a regular file"});
  expect_refused(read(kData + "/none").status(), Code::io_error, {"cannot be opened"});
  expect_refused(read("/dev/null").status(), Code::io_error, {"not a regular file"});
}

TEST(GgufReader, MetadataOfAllTypes) {
  const auto file = File::open(kData + "/types.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto value = [&](const char* key) { return file.value()->find(key)->value; };
  EXPECT_EQ(value("general.architecture").text(), "llama");
  EXPECT_EQ(value("test.mixed").count, 3u);
  EXPECT_EQ(value("test.mixed").integer(1), -2);
  EXPECT_EQ(value("test.mixed").integer(3), std::nullopt);
  EXPECT_EQ(value("test.texts").count, 3u);
  EXPECT_EQ(value("test.texts").text(), std::nullopt);
  EXPECT_EQ(value("test.f64").real(), 0.1);
  EXPECT_EQ(value("test.i8").integer(), -5);
  EXPECT_EQ(value("test.u64").integer(), std::nullopt);  // 2^63
  EXPECT_EQ(value("test.bool").boolean(), true);
  EXPECT_EQ(file.value()->find("test"), nullptr);
}

Result<Source> crafted_llama(const std::function<void(Crafted&)>& last, uint64_t entries,
                             uint64_t tensors = 0) {
  Crafted file;
  file.head(tensors, 7 + entries);
  file.key("general.architecture", ValueType::text).text("llama");
  for (const auto& [key, number] :
       {std::pair("block_count", 1), std::pair("context_length", 8),
        std::pair("embedding_length", 8), std::pair("feed_forward_length", 8),
        std::pair("attention.head_count", 2)}) {
    file.key(std::string("llama.") + key, ValueType::u32).put(number);
  }
  file.key("llama.attention.layer_norm_rms_epsilon", ValueType::f32).put(1e-5f);
  last(file);
  return read(file.span(), "crafted.gguf");
}

TEST(GgufReader, RefusesWhatNoArchitectureHas) {
  expect_refused(read(Crafted().head(0, 0).span(), "a.gguf").status(), Code::bad_file,
                 {"general.architecture", "While reading \"a.gguf\""});
  Crafted other;
  other.head(0, 1).key("general.architecture", ValueType::text).text("mamba\n");
  expect_refused(read(other.span(), "a.gguf").status(), Code::unsupported,
                 {"\"mamba\\n\"", "bert, gemma2, gpt2, llama, nomic-bert, qwen2, qwen3"});
  expect_refused(read(kData + "/types.gguf").status(), Code::bad_file, {"llama.block_count"});
  EXPECT_TRUE(crafted_llama([](Crafted&) {}, 0).ok());
  const auto with_tensor = [](std::string_view name, std::initializer_list<uint64_t> dims) {
    return crafted_llama([&](Crafted& f) { f.tensor(name, dims, 0, 0).data(4096); }, 0, 1).status();
  };
  expect_refused(with_tensor("blk.0.attn_x.weight", {8}), Code::unsupported,
                 {"\"blk.0.attn_x.weight\" is not a tensor of the architecture llama"});
  expect_refused(with_tensor("blk.00.ffn_up.weight", {8}), Code::unsupported, {"blk.00"});
  expect_refused(with_tensor("blk.0.attn_q.weight", {8, 6}), Code::bad_file, {"6 rows", "2 heads"});
}

TEST(GgufReader, RefusesSettingsThatAreNone) {
  const auto with = [](std::string_view key, ValueType type, auto value) {
    return crafted_llama([&](Crafted& f) { f.key(key, type).put(value); }, 1).status();
  };
  expect_refused(with("llama.attention.head_count_kv", ValueType::f32, 1.0f), Code::bad_file,
                 {"head_count_kv", "not an integer"});
  expect_refused(with("llama.rope.freq_base", ValueType::f32, INFINITY), Code::bad_file,
                 {"rope.freq_base"});
  expect_refused(with("llama.attention.value_length", ValueType::u32, 3), Code::unsupported,
                 {"value_length", "is 3"});
  expect_refused(with("tokenizer.ggml.bos_token_id", ValueType::f32, 1.0f), Code::bad_file,
                 {"bos_token_id"});
  const auto vocabulary = crafted_llama(
      [](Crafted& f) {
        f.key("llama.vocab_size", ValueType::u32).put(5);
        f.tensor("token_embd.weight", {8, 4}, 0, 0).data(128);
      },
      1, 1);
  expect_refused(vocabulary.status(), Code::bad_file, {"vocab_size", "is 5", "4 rows"});
  const auto scaled = crafted_llama(
      [](Crafted& f) { f.key("llama.rope.scaling.type", ValueType::text).text("su"); }, 1);
  expect_refused(scaled.status(), Code::unsupported, {"\"su\""});
  const auto layers = crafted_llama(
      [](Crafted& f) {
        f.key("llama.attention.head_count_kv", ValueType::array).put(uint32_t{4}).put(uint64_t{2});
        f.put(2).put(1);
      },
      1);
  expect_refused(layers.status(), Code::unsupported, {"head_count_kv", "differs between layers"});
  const auto divisors = crafted_llama(
      [](Crafted& f) { f.tensor("rope_freqs.weight", {2}, 0, 0).data(0).put(1.0f).put(-3.0f); }, 0,
      1);
  expect_refused(divisors.status(), Code::unsupported, {"rope_freqs.weight", "supported"});
}

TEST(GgufReader, Settings) {
  const Result<Source> source = read(kData + "/llama_q8_0.gguf");
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source.value().format, "GGUF");
  EXPECT_EQ(source.value().config, json::parse(R"({"architectures": ["LlamaForCausalLM"],
      "attention_bias": false, "bos_token_id": 60, "eos_token_id": 61, "pad_token_id": 62,
      "head_dim": 8, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 32,
      "max_position_embeddings": 16, "mlp_bias": false, "model_type": "llama",
      "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true,
      "vocab_size": 64})"));
}

TEST(GgufReader, TheScalingOfLlama3IsRecognised) {
  const Result<Source> source = read(kData + "/llama_rope.gguf");
  ASSERT_TRUE(source.ok()) << source.status().message();
  json expected = json::parse(bytes_of("rope.json"));
  expected.erase("rope_theta");
  EXPECT_EQ(source.value().config["rope_scaling"], expected);
  for (const auto& [context, high] : {std::pair(4096, 4.0), std::pair(8192, 2.5)}) {
    expected["original_max_position_embeddings"] = context;
    expected["high_freq_factor"] = high;
    expected["factor"] = 32.0;
    const auto found = llama3_scaling(llama3_divisors(expected, 500000, 128), 500000, 128);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found.value(), expected);
  }
}

// Small heads have at most one wavelength between the unchanged and the divided ones.
TEST(GgufReader, TheScalingOfLlama3IsRecognisedOfFewWavelengths) {
  json scaling = {{"rope_type", "llama3"},
                  {"factor", 4.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0}};
  for (const int64_t dim : {2, 4, 6, 8, 16}) {
    for (const int context : {16, 100, 320, 8192}) {
      SCOPED_TRACE(std::to_string(dim) + " of a head, context " + std::to_string(context));
      scaling["original_max_position_embeddings"] = context;
      const std::vector<float> divisors = llama3_divisors(scaling, 10000, dim);
      const auto found = llama3_scaling(divisors, 10000, dim);
      ASSERT_TRUE(found.ok()) << found.status().message();
      const std::vector<float> again = llama3_divisors(found.value(), 10000, dim);
      for (size_t i = 0; i < divisors.size(); ++i) {
        EXPECT_NEAR(again[i], divisors[i], 1e-4f * divisors[i]);
      }
    }
  }
  scaling["original_max_position_embeddings"] = 16;
  EXPECT_EQ(llama3_scaling(llama3_divisors(scaling, 10000, 8), 10000, 8).value(), scaling);
}

TEST(GgufReader, Assets) {
  const Result<Source> source = read(kData + "/llama_q8_0.gguf");
  ASSERT_TRUE(source.ok());
  const auto asset = [&](std::string_view name) {
    return *std::ranges::find(source.value().assets, name, &import::SourceAsset::name);
  };
  const Result<File> tokenizer = File::parse(asset("tokenizer").bytes);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_TRUE(tokenizer.value().tensors.empty());
  EXPECT_EQ(tokenizer.value().find("tokenizer.ggml.model")->value.text(), "gpt2");
  EXPECT_EQ(tokenizer.value().find("tokenizer.ggml.tokens")->value.count, 64u);
  EXPECT_EQ(tokenizer.value().find("tokenizer.chat_template"), nullptr);
  EXPECT_EQ(tokenizer.value().find("general.architecture"), nullptr);
  EXPECT_EQ(asset("tokenizer").media_type, "application/vnd.gguf.tokenizer");
  const auto text = asset("chat_template").bytes;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.data()), text.size()),
            "{% for m in messages %}{{ m['content'] }}{% endfor %}");
}

TEST(GgufReader, TheFileStaysOpenAsLongAsATensor) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("bowline_gguf_" + std::to_string(::getpid()) + ".gguf");
  std::filesystem::copy_file(kData + "/names_llama.gguf", path,
                             std::filesystem::copy_options::overwrite_existing);
  ValueSource values;
  {
    const Result<Source> source = read(path.string());
    ASSERT_TRUE(source.ok());
    values = source.value().tensors[0].read;
  }
  std::filesystem::remove(path);
  float number = -1;
  EXPECT_TRUE(values(0, std::as_writable_bytes(std::span(&number, 1))).ok());
  EXPECT_EQ(std::fmod(number, 1000), 0);
}

}  // namespace
}  // namespace bowline::gguf
