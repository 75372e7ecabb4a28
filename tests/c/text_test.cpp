// Tokenizers, chat templates, generators and stop strings.
#include <nlohmann/json.hpp>
#include <thread>

#include "world.h"

namespace c_test {
namespace {

struct Text : ::testing::Test {
  void SetUp() override {
    if (text_api() == nullptr) {
      GTEST_SKIP() << "The library was built without bowline::text.";
    }
  }
  const bowline_text_api* t = text_api();
  bowline_buffer* out = nullptr;
};

TEST_F(Text, BytesReturnAfterEncodingAndDecoding) {
  bowline_tokenizer* tokenizer = nullptr;
  must(t->tokenizer_of_bytes, &tokenizer);
  const std::string text("a\0 \xC3\xA4\xE2\x82\xAC\n", 9);
  size_t count = 0;
  must(t->tokenizer_encode, tokenizer, text.data(), text.size(), nullptr, nullptr, 0, &count);
  ASSERT_GE(count, text.size());
  std::vector<bowline_token> tokens(count + 1, {-7, 0, 0, 0});
  must(t->tokenizer_encode, tokenizer, text.data(), text.size(), nullptr, tokens.data(), count,
       &count);
  EXPECT_EQ(tokens[count].id, -7) << "More tokens were written than there is room for.";
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(tokens[i].id);
  }
  must(t->tokenizer_decode, tokenizer, ids.data(), ids.size(), 1, &out);
  EXPECT_EQ(text_of(out), text);
  bowline_decoder* decoder = nullptr;
  must(t->tokenizer_stream, tokenizer, 1, &decoder);
  must(t->tokenizer_close, tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    must(t->decoder_next, decoder, id, &out);
    streamed += text_of(out);
  }
  must(t->decoder_flush, decoder, &out);
  EXPECT_EQ(streamed + text_of(out), text);
  must(t->decoder_close, decoder);
}

TEST_F(Text, ChatmlIsRendered) {
  bowline_chat_template* chat = nullptr;
  must(t->chat_template_named, "chatml", &chat);
  const bowline_chat_message messages[] = {{sizeof(messages[0]), "user", "Hello", nullptr},
                                           {sizeof(messages[0]), "assistant", "Hi", nullptr}};
  auto inputs = sized<bowline_chat_inputs>();
  inputs.add_generation_prompt = 1;
  must(t->chat_template_render, chat, messages, 2, &inputs, nullptr, &out);
  EXPECT_EQ(text_of(out),
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  must(t->chat_template_names, &out);
  EXPECT_NE(text_of(out).find("\"chatml\""), std::string::npos);
  must(t->chat_template_render_marked, chat, messages, 2, nullptr, nullptr, &out);
  EXPECT_TRUE(nlohmann::json::parse(text_of(out)).is_object());
  must(t->chat_template_close, chat);
  EXPECT_NE(call(t->chat_template_named, "none", &chat).code, BOWLINE_OK);
}

TEST_F(Text, SpecialTokensReachTheTemplate) {
  bowline_chat_template* chat = nullptr;
  must(t->chat_template_from_text, "{{ bos_token }}|{{ pad_token }}|{{ messages[0].content }}",
       &chat);
  const char* const others[] = {"pad_token", "<pad>"};
  auto special = sized<bowline_special_tokens>();
  special.bos = "<s>";
  special.others = others;
  special.other_count = 1;
  const bowline_chat_message message = {sizeof(message), "user", "x", nullptr};
  must(t->chat_template_render, chat, &message, 1, nullptr, &special, &out);
  EXPECT_EQ(text_of(out), "<s>|<pad>|x");
  must(t->chat_template_close, chat);
}

TEST_F(Text, ToolsReachTheTemplate) {
  bowline_chat_template* chat = nullptr;
  must(t->chat_template_from_text,
       "{{ tools[0].name }}|{{ think }}|{% for m in messages %}{{ m.role }}:{{ m.calls | tojson }};"
       "{% endfor %}",
       &chat);
  auto inputs = sized<bowline_chat_inputs>();
  inputs.tools = R"([{"name": "f"}])";
  inputs.variables = R"({"think": false})";
  const bowline_chat_message message = {sizeof(message), nullptr, nullptr,
                                        R"({"role": "assistant", "calls": [{"x": 1.5}]})"};
  must(t->chat_template_render, chat, &message, 1, &inputs, nullptr, &out);
  EXPECT_EQ(text_of(out), R"(f|False|assistant:[{"x": 1.5}];)");
  inputs.tools = "{}";
  expect_error(call(t->chat_template_render, chat, &message, 1, &inputs, nullptr, &out),
               BOWLINE_BAD_ARGUMENT, "The tools are a dict, and not a list.");
  must(t->chat_template_close, chat);
}

TEST_F(Text, AStopStringEndsAText) {
  const char* const stops[] = {"END", "stop"};
  bowline_stop_strings* strings = nullptr;
  must(t->stop_strings_create, stops, 2, &strings);
  must(t->stop_strings_add, strings, "one E", &out);
  EXPECT_EQ(text_of(out), "one ");
  int32_t stopped = 7;
  must(t->stop_strings_stopped, strings, &stopped);
  EXPECT_EQ(stopped, 0);
  must(t->stop_strings_add, strings, "ND two", &out);
  EXPECT_EQ(text_of(out), "");
  must(t->stop_strings_stopped, strings, &stopped);
  EXPECT_EQ(stopped, 1);
  must(t->stop_strings_close, strings);
}

TEST_F(Text, AGeneratorGoesBackAndIsCancelled) {
  World world;
  bowline_generator* const g = world.h.generator;
  const int32_t prompt[] = {1, 2, 3};
  must(t->generator_feed, g, prompt, 3);
  auto greedy = sized<bowline_sampler_options>();
  must(t->sampler_options_init, &greedy);
  greedy.temperature = 0;
  must(t->generator_set_sampler, g, &greedy);
  int32_t first = -1, again = -2;
  must(t->generator_next, g, &first);
  std::vector<int32_t> tokens(8, -7);
  size_t count = 0;
  must(t->generator_tokens, g, tokens.data(), 2, &count);
  EXPECT_GE(count, 3u);
  EXPECT_EQ(tokens[1], 2);
  EXPECT_EQ(tokens[2], -7);
  size_t reused = 9;
  must(t->generator_replace, g, prompt, 3, &reused);
  std::thread([&] { must(t->generator_cancel, g); }).join();
  EXPECT_EQ(call(t->generator_next, g, &again).code, BOWLINE_CANCELLED);
  must(t->generator_next, g, &again);
  EXPECT_EQ(again, first);
}

}  // namespace
}  // namespace c_test
