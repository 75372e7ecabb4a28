// Chat templates: what transformers renders, to the byte, and what is refused.
#include <bowline_text.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace bowline::text {
namespace {

using nlohmann::json;

const json& fixture() {
  static const json loaded = [] {
    std::ifstream file(BOWLINE_CHAT_FIXTURE);
    return json::parse(file);
  }();
  return loaded;
}

std::vector<ChatMessage> conversation(size_t number) {
  std::vector<ChatMessage> out;
  for (const json& message : fixture()["conversations"][number]) {
    out.push_back({message["role"], message["content"]});
  }
  return out;
}

// The same text, or a refusal where Jinja2 has one, with the sentence of raise_exception().
void expect_same(const json& expected, const Result<std::string>& got, const std::string& what) {
  if (expected.contains("text")) {
    ASSERT_TRUE(got.ok()) << what << ": " << got.status().message();
    EXPECT_EQ(got.value(), expected["text"].get<std::string>()) << what;
    return;
  }
  const std::string sentence = expected["error"];
  ASSERT_FALSE(got.ok()) << what;
  EXPECT_NE(got.status().message().find(sentence), std::string::npos)
      << what << ": " << got.status().message();
  EXPECT_EQ(got.status().code(), sentence.empty() ? Code::bad_file : Code::bad_argument) << what;
}

TEST(ChatFormats, FamiliesAreRenderedAsTransformersDoes) {
  size_t texts = 0, refusals = 0;
  for (const json& family : fixture()["families"]) {
    const auto format = ChatFormat::from_template(family["template"].get<std::string>());
    ASSERT_TRUE(format.ok()) << family["name"] << format.status().message();
    const SpecialTexts special{family["bos"], family["eos"], fixture()["now"].get<int64_t>()};
    for (size_t c = 0; c < family["cases"].size(); ++c) {
      for (const bool add : {false, true}) {
        const json& expected = family["cases"][c][add ? 1 : 0];
        (expected.contains("text") ? texts : refusals) += 1;
        expect_same(expected, format.value().render(conversation(c), add, special),
                    family["name"].get<std::string>() + ", conversation " + std::to_string(c));
      }
    }
  }
  EXPECT_GT(texts, 300u);
  EXPECT_GT(refusals, 40u);
}

TEST(ChatFormats, TheLanguageIsThatOfJinja2) {
  const SpecialTexts special{"<s>", "</s>", fixture()["now"].get<int64_t>()};
  for (const json& feature : fixture()["features"]) {
    const std::string text = feature["template"];
    const auto format = ChatFormat::from_template(text);
    ASSERT_TRUE(format.ok()) << text << "\n" << format.status().message();
    expect_same(feature, format.value().render(conversation(5), true, special), text);
  }
}

TEST(ChatFormats, TheFixturesHaveTheFormatsOfTheLibrary) {
  const std::vector<std::string> names = ChatFormat::names();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    const ChatFormat format = ChatFormat::named(name).value();
    EXPECT_EQ(format.name(), name);
    const auto& families = fixture()["families"];
    EXPECT_TRUE(std::ranges::any_of(families,
                                    [&](const json& family) {
                                      return family["name"] == name &&
                                             family["template"] == format.text();
                                    }))
        << name << " is not that of chat.json; make_chat_fixtures.py makes it";
  }
}

std::string rendered(const std::string& text, std::vector<ChatMessage> messages = {}) {
  const auto format = ChatFormat::from_template(text);
  if (!format.ok()) {
    return "parse: " + format.status().message();
  }
  const auto out = format.value().render(messages, false, {});
  return out.ok() ? out.value()
                  : std::string(name_of(out.status().code())) + ": " + out.status().message();
}

TEST(ChatFormats, WithoutAClockThereIsNoDate) {
  EXPECT_EQ(rendered("{{ 'none' if strftime_now is not defined }}"), "none");
}

TEST(ChatFormats, WhatIsNotKnownIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% include 'x' %}", "\"include\""},
      {"{{ 1.5 }}", "1.5"},
      {"{{ 'a' | wordwrap }}", "\"wordwrap\""},
      {"{{ 'a' is escaped }}", "\"escaped\""},
      {"{{ 'a'.zfill(3) }}", "\"zfill\""},
      {"{{ unk_token }}", "\"unk_token\""},
      {"{{ 1 / 2 }}", "\"/\""},
      {"{{ [1] }}", "a list"},
      {"{{ 'ä' | upper }}", "ASCII"},
      {"{{ x.y }}", "\"x\""},
      {"{{ 'a' + 1 }}", "a text and a number"},
      {"\n\n{{ 'a' + 1 }}", "line 3"},
      {"{% for x in y %}", "endfor"},
      {"{% if %}{% endif %}", "An expression"},
      {"{{ a b }}", "\"b\""},
      {"{{ 'a }}", "no end"},
      {"{{ (1 }}", "closes none"},
      {"{# a", "no end"},
      {"{% break %}", "outside"},
      {"\xff", "UTF-8"},
  };
  for (const auto& [text, part] : cases) {
    const std::string message = rendered(text);
    EXPECT_NE(message.find(part), std::string::npos) << text << " gives " << message;
    EXPECT_NE(message.find("--chat-format"), std::string::npos) << message;
    EXPECT_NE(message.find("chatml, gemma, llama2"), std::string::npos) << message;
  }
}

TEST(ChatFormats, AHostileTemplateHasLimits) {
  const auto repeated = [](std::string_view what, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) {
      out += what;
    }
    return out;
  };
  const std::string cases[] = {
      "{{ " + repeated("(", 100000) + " }}",
      "{{ " + repeated("[", 100000) + repeated("]", 100000) + " }}",
      "{{ " + repeated("not ", 100000) + "1 }}",
      "{{ " + repeated("-", 100000) + "1 }}",
      "{{ 1" + repeated(" + 1", 100000) + " }}",
      "{{ 1" + repeated(" | string", 100000) + " }}",
      "{{ a" + repeated(".a", 100000) + " }}",
      repeated("{% if 1 %}", 100000),
      repeated("{% for a in b %}", 100000),
      repeated("{", 2000000),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(a) %}{{ m(a ~ m(a)) }}{% endmacro %}{{ m('') }}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(s='aaaaaaaa') %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% "
      "endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% endfor "
      "%}",
      "{% set n = namespace(s=[]) %}{% for a in range(99999) %}{% set n.s = [n.s, n.s] %}{% endfor "
      "%}{{ n.s == [n.s] }}{{ n.s | tojson }}",
      "{% for a in range(100000) %}{{ '0123456789' * 100 }}{% endfor %}",
      "{{ 'a' * 9223372036854775807 }}",
      "{{ range(9223372036854775807) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 9223372036854775807 * 2 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ 99999999999999999999 }}",
      "{{ 1 // 0 }}",
      "{{ 1 % 0 }}",
      "{{ 'a'[::0] }}",
      "{{ [[1]] | tojson(indent=9999999) }}",
      "{{ '\\ud800' }}",
      "{{ '\\xzz' }}",
  };
  for (const std::string& text : cases) {
    const std::string out = rendered(text);
    EXPECT_TRUE(out.starts_with("parse: ") || out.starts_with("bad_file: "))
        << text.substr(0, 80) << " gives " << out.substr(0, 200);
  }
}

TEST(ChatFormats, AMessageThatIsNoUtf8IsRefused) {
  EXPECT_EQ(rendered("{{ messages[0].content }}", {{"user", "a\xff"}}),
            "bad_argument: The content of message 1 is not valid UTF-8 (byte 1).");
}

TEST(ChatFormats, AModelWithoutATemplateNamesTheFlag) {
  const auto format = ChatFormat::from(Model());
  ASSERT_FALSE(format.ok());
  EXPECT_EQ(format.status().code(), Code::bad_argument);
  EXPECT_NE(format.status().message().find("--chat-format"), std::string::npos);
  EXPECT_FALSE(ChatFormat::named("none").ok());
}

}  // namespace
}  // namespace bowline::text
