// Chat templates: rendered text equals that of transformers, and unsupported templates are
// rejected.
#include <bowline_text.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "chat/render_json.h"
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

// Expects the same text, or an error if Jinja2 has one, with the message of raise_exception().
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
    const auto format = ChatTemplate::from_text(family["template"].get<std::string>());
    ASSERT_TRUE(format.ok()) << family["name"] << format.status().message();
    const SpecialTokens special{family["bos"], family["eos"], fixture()["now"].get<int64_t>()};
    for (size_t c = 0; c < family["cases"].size(); ++c) {
      for (const bool add : {false, true}) {
        const json& expected = family["cases"][c][add ? 1 : 0];
        (expected.contains("text") ? texts : refusals) += 1;
        expect_same(expected,
                    format.value().render(conversation(c), {.add_generation_prompt = add}, special),
                    family["name"].get<std::string>() + ", conversation " + std::to_string(c));
      }
    }
  }
  EXPECT_GT(texts, 300u);
  EXPECT_GT(refusals, 40u);
}

TEST(ChatFormats, TheLanguageIsThatOfJinja2) {
  const SpecialTokens special{"<s>", "</s>", fixture()["now"].get<int64_t>()};
  for (const json& feature : fixture()["features"]) {
    const std::string text = feature["template"];
    const auto format = ChatTemplate::from_text(text);
    ASSERT_TRUE(format.ok()) << text << "\n" << format.status().message();
    expect_same(feature,
                format.value().render(conversation(5), {.add_generation_prompt = true}, special),
                text);
  }
}

// FNV-1a, as in public_templates.py. public.json holds hashes to stay small.
std::string hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  std::string out(16, '0');
  for (size_t i = 0; i < 16; ++i) {
    out[15 - i] = "0123456789abcdef"[hash >> 4 * i & 15];
  }
  return out;
}

// With tools, tool calls, thoughts, content parts and documents, and the marks of answers.
TEST(ChatFormats, PublicTemplatesAreRenderedAsTransformersDoes) {
  std::ifstream file(BOWLINE_PUBLIC_TEMPLATES);
  auto all = nlohmann::ordered_json::parse(file);
  size_t texts = 0;
  for (const auto& one : all["templates"]) {
    size_t number = 0;
    for (auto& globals : all["conversations"]) {
      for (const bool add : {false, true}) {
        globals["add_generation_prompt"] = add;
        const std::string expected = one["cases"][number++];
        const std::string what =
            one["name"].get<std::string>() + ", case " + std::to_string(number);
        const auto got = render_json(one["template"], globals, all["now"].get<int64_t>());
        ASSERT_EQ(got.ok(), !expected.empty()) << what << ": " << got.status().message();
        if (got.ok()) {
          json answers = json::array();
          for (const Offset& answer : got.value().answers) {
            answers.push_back({answer.begin, answer.end});
          }
          EXPECT_EQ(hash_of(got.value().text + answers.dump()), expected) << what << ":\n"
                                                                          << got.value().text;
          ++texts;
        }
      }
    }
  }
  EXPECT_GT(texts, 1000u);
}

TEST(ChatFormats, TheFixturesHaveTheFormatsOfTheLibrary) {
  const std::vector<std::string> names = ChatTemplate::names();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    const ChatTemplate format = ChatTemplate::named(name).value();
    EXPECT_EQ(format.name(), name);
    const auto& families = fixture()["families"];
    EXPECT_TRUE(std::ranges::any_of(families,
                                    [&](const json& family) {
                                      return family["name"] == name &&
                                             family["template"] == format.text();
                                    }))
        << name << " differs from chat.json; run make_chat_fixtures.py";
  }
}

std::string rendered(const std::string& text, std::vector<ChatMessage> messages = {}) {
  const auto format = ChatTemplate::from_text(text);
  if (!format.ok()) {
    return "parse: " + format.status().message();
  }
  const auto out = format.value().render(messages, {}, {});
  return out.ok() ? out.value()
                  : std::string(name_of(out.status().code())) + ": " + out.status().message();
}

TEST(ChatFormats, WithoutAClockThereIsNoDate) {
  EXPECT_EQ(rendered("{{ 'none' if strftime_now is not defined }}"), "none");
}

std::string rendered_with(const ChatMessage& message, const ChatInputs& inputs) {
  const auto format = ChatTemplate::from_text(
      "{{ messages[0] | tojson }} {{ tools | tojson }} {{ documents is none }} {{ more }}");
  const auto out = format.value().render({&message, 1}, inputs, {"<s>", ""});
  return out.ok() ? out.value()
                  : std::string(name_of(out.status().code())) + ": " + out.status().message();
}

// As json.loads() of Python: the order of the keys stays, and the last of equal keys counts.
TEST(ChatFormats, MessagesToolsAndVariablesMayBeJson) {
  const ChatMessage message = {"", "",
                               R"({"z": 1, "a": [true, null, 0.5], "z": -7, "é": "\u00e9"})"};
  EXPECT_EQ(rendered_with(message, {false, R"([{"n": {}}])", R"({"more": "x", "documents": []})"}),
            R"({"z": -7, "a": [true, null, 0.5], "é": "é"} [{"n": {}}] False x)");
  EXPECT_EQ(rendered_with({"user", "x"}, {}), R"({"role": "user", "content": "x"} null True )");
}

TEST(ChatFormats, WrongJsonIsRefused) {
  const ChatMessage user = {"user", "x"};
  const auto starts = [](const std::string& text, const std::string& with) {
    EXPECT_EQ(text.substr(0, with.size()), with);
  };
  starts(rendered_with({"", "", "{"}, {}),
         "bad_argument: The members of message 1 are not valid JSON: ");
  starts(rendered_with({"", "", "[1]"}, {}),
         "bad_argument: The members of message 1 are a list, and not a dict.");
  starts(
      rendered_with({"", "", "{\"a\": 18446744073709551615}"}, {}),
      "bad_argument: The members of message 1 have the integer 18446744073709551615, which is too "
      "large.");
  starts(rendered_with({"", "", "{\"a\": \"\xff\"}"}, {}),
         "bad_argument: The members of message 1 are not valid JSON: ");
  starts(rendered_with(user, {false, "{}"}), "bad_argument: The tools are a dict, and not a list.");
  starts(rendered_with(user, {false, "", "7"}),
         "bad_argument: The variables of the template are a number, and not a dict.");
  for (const char* name : {"messages", "tools", "bos_token", "add_generation_prompt"}) {
    starts(
        rendered_with(user, {false, "", std::string("{\"") + name + "\": 1}"}),
        std::string("bad_argument: The variable \"") + name + "\" of the template cannot be set");
  }
  const std::string deep = std::string(2000, '[') + std::string(2000, ']');
  starts(rendered_with(user, {false, deep}), "bad_argument: The tools are not valid JSON: ");
}

TEST(ChatFormats, AnswersThatATemplateMarksAreKnownByTheirPlace) {
  const auto format = ChatTemplate::from_text(
      "{% macro turn(m) %}<{% generation %}{{ m.content }}!{% endgeneration %}>{% endmacro %}"
      "{% for m in messages %}{% if m.role == 'user' %}Zü {{ m.content }}\n{% elif loop.last %}"
      "{{ turn(m) }}{% else %}A: {% generation %}{{ m.content }}{% endgeneration %}\n{% endif %}"
      "{% endfor %}");
  ASSERT_TRUE(format.ok()) << format.status().message();
  EXPECT_TRUE(format.value().marks_answers());
  const std::vector<ChatMessage> messages = {
      {"user", "a"}, {"assistant", "é"}, {"user", "b"}, {"assistant", "last"}};
  const auto chat = format.value().render_marked(messages, {}, {});
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat.value().text, "Zü a\nA: éZü b\n<last!>");
  // In a macro the mark starts at the call of the macro, as in transformers.
  EXPECT_EQ(chat.value().answers, (std::vector<Offset>{{9, 11}, {17, 22}}));
  EXPECT_FALSE(ChatTemplate::named("chatml").value().marks_answers());
}

TEST(ChatFormats, ALayoutOfATimeThatIsNotKnownIsRefused) {
  const auto format = ChatTemplate::from_text("{{ strftime_now('%d %Q') }}");
  const auto out = format.value().render({}, {}, {.bos = "", .eos = "", .now = 0});
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.status().message().find("\"%d %Q\" of a time"), std::string::npos)
      << out.status().message();
}

// The special tokens of the model by name. A token that the model does not have is undefined, as in
// Jinja2.
TEST(ChatFormats, TemplatesSeeAllSpecialTokens) {
  Model model;
  for (const auto& [name, text] : {std::pair("bos_token", "<s>"),
                                   {"unk_token", "<unk>"},
                                   {"pad_token", "<pad>"},
                                   {"sep_token", "<sep>"},
                                   {"cls_token", "<cls>"}}) {
    ASSERT_TRUE(model.set_metadata(name, text).ok());
  }
  const auto format = ChatTemplate::from_text(
      "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ sep_token }}{{ cls_token }}"
      "{{ mask_token }}{{ mask_token is defined }}");
  ASSERT_TRUE(format.ok()) << format.status().message();
  const auto text = format.value().render({}, {}, SpecialTokens::of(model));
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(), "<s><unk><pad><sep><cls>False");
}

TEST(ChatFormats, WhatIsNotKnownIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% include 'x' %}", "\"include\""},
      {"{{ 0x1f }}", "0x"},
      {"{{ 'a' | wordwrap }}", "\"wordwrap\""},
      {"{{ 'a' is escaped }}", "\"escaped\""},
      {"{{ 'a'.casefold() }}", "\"casefold\""},
      {"{{ '{:n}'.format(1) }}", "\"n\""},
      {"{{ '{} {1}'.format(1, 2) }}", "\"1\""},
      {"{{ ('a' | safe) + 'b' }}", "\"safe\""},
      {"{{ [1, 'a'] | sort }}", "to sort"},
      {"{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "\"caller\""},
      {"{{ image_token }}", "\"image_token\""},
      {"{{ 'a' % 1 }}", "\"%\""},
      {"{{ range(3) }}", "a range"},
      {"{{ namespace() }}", "a namespace"},
      {"{{ 'ä' | upper }}", "ASCII"},
      {"{{ x.y }}", "\"x\""},
      {"{{ 'a' + 1 }}", "a text and a number"},
      {"\n\n{{ 'a' + 1 }}", "line 3"},
      {"{{ 1 }}\n{{ 2\n+ $ }}", "line 3"},
      {"{{ 1 }}\n{{ 2\n3 }}", "line 3"},
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
      "{{ 10 ** 400 }}",
      "{{ 10.0 ** 400 }}",
      "{{ 1e999 }}",
      "{{ 1.5 / 0 }}",
      "{{ 9007199254740993 + 0.5 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ '{:.999999999f}'.format(1.5) }}",
      "{{ '{' * 1000000 + '}' * 1000000 | string }}{{ ('{' * 100000).format() }}",
      "{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}{% "
      "endcall %}",
      "{% set n = namespace(s=[]) %}{% for a in range(99999) %}{% set n.s = [n.s, n.s] %}{% endfor "
      "%}"
      "{{ n.s }}",
      "{% for a in range(100000) %}{{ {'a': range(1000) | list} }}{% endfor %}",
      "{{ range(99999) | list | tojson(indent='a' * 10000000) }}",
      "{{ range(99999) | list | tojson(separators=[',' * 10000000, ':']) }}",
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

TEST(ChatFormats, ASpecialTokenThatIsNoUtf8IsRefused) {
  const auto format = ChatTemplate::from_text("{{ bos_token | tojson }}");
  ASSERT_TRUE(format.ok());
  const auto got = format.value().render({}, {}, {.bos = "<s>\xf0", .eos = ""});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().message(), "The special token bos_token is not valid UTF-8 (byte 3).");
}

TEST(ChatFormats, AModelWithoutATemplateNamesTheFlag) {
  const auto format = ChatTemplate::from(Model());
  ASSERT_FALSE(format.ok());
  EXPECT_EQ(format.status().code(), Code::bad_argument);
  EXPECT_NE(format.status().message().find("--chat-format"), std::string::npos);
  EXPECT_FALSE(ChatTemplate::named("none").ok());
}

}  // namespace
}  // namespace bowline::text
