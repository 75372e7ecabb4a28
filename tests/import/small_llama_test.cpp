// The model of samples/small_llama gives the answer of transformers with the values of the file.
#include <nlohmann/json.hpp>

#include "bowline_text.h"
#include "fixtures.h"
#include "gguf/read.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Ids = std::vector<int32_t>;

class SmallLlama : public testing::TestWithParam<std::string> {
 protected:
  // The whole answer on the CPU; a part on other devices, because software devices are slow.
  size_t tokens() const { return GetParam() == "cpu" ? 256 : 12; }
};

TEST_P(SmallLlama, GreedyTokensAreThoseOfTransformers) {
  BOWLINE_NEED(why_missing(GetParam()));
  const auto source = gguf::read(BOWLINE_SMALL_LLAMA "/model.gguf");
  ASSERT_TRUE(source.ok()) << source.status().message();
  auto built = build_model(source.value(), {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  Model& model = built.value().model;
  const auto device = Device::open(GetParam());
  ASSERT_TRUE(device.ok()) << device.status().message();
  ASSERT_FINE(model.to(device.value()));
  const auto tokenizer = text::Tokenizer::from(model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  auto generator = text::Generator::create(model, device.value(), {.context = 320});
  ASSERT_TRUE(generator.ok()) << generator.status().message();

  std::ifstream file(BOWLINE_SMALL_LLAMA "/greedy.json");
  const nlohmann::json answers = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(answers.is_array() && !answers.empty());
  for (const nlohmann::json& answer : answers) {
    const auto prompt = answer["prompt"].get<std::string>();
    const auto encoded = tokenizer.value().encode(prompt);
    ASSERT_TRUE(encoded.ok()) << encoded.status().message();
    EXPECT_EQ(encoded.value().ids, answer["prompt_ids"].get<Ids>());
    auto right = answer["ids"].get<Ids>();
    ASSERT_EQ(right.size(), 256u);
    right.resize(tokens());
    ASSERT_FINE(generator.value().rewind(0));
    ASSERT_FINE(generator.value().feed(encoded.value().ids));
    Ids given;
    for (size_t i = 0; i < right.size(); ++i) {
      const auto next = generator.value().next();
      ASSERT_TRUE(next.ok()) << next.status().message();
      given.push_back(next.value());
    }
    EXPECT_EQ(given, right) << prompt;
    const auto decoded = tokenizer.value().decode(given, false);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_TRUE(answer["text"].get<std::string>().starts_with(decoded.value()));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SmallLlama, testing::ValuesIn(computing_device_names()),
                         [](const auto& of) { return test_name(of.param); });

}  // namespace
}  // namespace bowline::test
