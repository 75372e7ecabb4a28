// Rows of texts with labels, and of conversations: their content, and errors with their position.
#include <gtest/gtest.h>

#include "data/chats.h"
#include "data/examples.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

template <class T>
std::string refusal(const Result<T>& result) {
  EXPECT_FALSE(result.ok());
  if (result.ok()) {
    return "";
  }
  EXPECT_EQ(result.status().code(), Code::bad_file);
  return result.status().message();
}

std::string refused_row(std::string_view text, const std::string& name = "f.jsonl") {
  return refusal(read_examples(text, name, {}));
}

TEST(Examples, AreTheSameInEveryForm) {
  const std::pair<const char*, const char*> files[] = {
      {"f.csv", "label,text\nred,a rose\nblue,the sea\n"},
      {"f.tsv", "text\tid\tlabel\na rose\t1\tred\nthe sea\t2\tblue\n"},
      {"f.jsonl",
       "{\"text\": \"a rose\", \"label\": \"red\"}\n\n{\"label\": \"blue\", \"text\": \"the "
       "sea\"}"}};
  for (const auto& [name, text] : files) {
    const Result<std::vector<Example>> rows = read_examples(text, name, {});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(rows.value().size(), 2u) << name;
    EXPECT_EQ(rows.value()[0].text, "a rose");
    EXPECT_EQ(rows.value()[0].labels, std::vector<std::string>{"red"});
    EXPECT_EQ(rows.value()[1].text, "the sea");
    EXPECT_EQ(labels_of(rows.value()), (std::vector<std::string>{"blue", "red"}));
  }
}

TEST(Examples, HaveSeveralLabels) {
  const ExampleFields several = {.several = true};
  const auto csv = read_examples("text,label\nx,a|b\ny,\n", "f.csv", several);
  const auto json =
      read_examples("{\"text\":\"x\",\"label\":[\"a\",\"b\"]}\n{\"text\":\"y\",\"label\":[]}",
                    "f.jsonl", several);
  for (const auto& rows : {csv, json}) {
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    EXPECT_EQ(rows.value()[0].labels, (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(rows.value()[1].labels.empty());
  }
  EXPECT_NE(refusal(read_examples("{\"text\":\"x\",\"label\":\"a\"}", "f.jsonl", several))
                .find("an array"),
            std::string::npos);
}

TEST(Examples, AreRefusedWithTheirPlace) {
  EXPECT_EQ(refused_row("text,label\nx,a\nx,a,b\n", "f.csv"),
            "f.csv:3: The row has 3 fields, the header 2.");
  EXPECT_EQ(
      refused_row("text,section\nx,a\n", "f.csv"),
      "f.csv:1: There is no column \"label\" (--label-field); there are \"text\", \"section\".");
  EXPECT_EQ(refused_row("text,label\n", "f.csv"), "\"f.csv\" holds no rows.");
  EXPECT_EQ(refused_row("", "f.csv"), "\"f.csv\" holds no header and no rows.");
  EXPECT_EQ(refused_row("\n\n"), "\"f.jsonl\" holds no rows.");
  EXPECT_EQ(refused_row("{\"text\":\"x\"}"),
            "f.jsonl:1: There is no field \"label\" (--label-field).");
  EXPECT_EQ(refused_row("{\"text\":1,\"label\":\"a\"}"),
            "f.jsonl:1: There is no field \"text\" (--text-field) with text.");
  EXPECT_EQ(refused_row("{\"text\":\"x\",\"label\":1.5}"),
            "f.jsonl:1: Field \"label\" holds a label that is number. A label must be text or a "
            "whole number.");
  EXPECT_NE(refused_row("x", "f.xlsx").find("must end in"), std::string::npos);
}

TEST(Examples, KnowTheirClasses) {
  const std::vector<Example> rows = {{"x", {"b"}, 2}, {"y", {"c", "b", "b"}, 3}};
  const std::vector<std::string> labels = {"a", "b", "c"};
  const auto classes = classes_of(rows, labels, "f.csv");
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(classes.value(), (std::vector<std::vector<int32_t>>{{1}, {1, 2}}));
  EXPECT_EQ(refusal(classes_of(rows, std::span(labels).first(2), "f.csv")),
            "f.csv:3: The model has no label \"c\"; it has \"a\", \"b\".");
}

TEST(Labels, StandOneOnALine) {
  EXPECT_EQ(read_labels("a\r\nb c\n", "l.txt").value(), (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(refusal(read_labels("a\n\nb", "l.txt")),
            "l.txt:2: The line is empty. Each line must hold a label.");
  EXPECT_EQ(refusal(read_labels("a\nb\na\n", "l.txt")),
            "l.txt:3: Label \"a\" is already in line 1.");
  EXPECT_EQ(refusal(read_labels("", "l.txt")), "l.txt holds no labels.");
}

TEST(JsonLines, AreRefusedWithLineAndColumn) {
  EXPECT_EQ(refused_row("{\"text\":\"x\",\"label\":\"a\"}\n{\"text\": \"\xC3\xA9\", label}"),
            "f.jsonl:2:15: The line is not valid JSON from here on.");
  EXPECT_EQ(refused_row("{\"text\": \"x\""),
            "f.jsonl:1:13: The line is not valid JSON from here on: it ends.");
  EXPECT_EQ(refused_row("[1, 2]"), "f.jsonl:1:1: The line holds no JSON object, but array.");
  EXPECT_EQ(refused_row("{\"text\": 1e999}"), "f.jsonl:1:1: The line has a number out of range.");
  const std::string deep(200'000, '[');
  EXPECT_NE(refused_row("{\"text\": " + deep).find("it ends"), std::string::npos);
  std::string wide;
  for (int i = 0; i < 300'000; ++i) {
    wide += (i == 0 ? "{\"" : ",\"") + std::to_string(i) + "\": 0";
  }
  for (const std::string& large : {deep + std::string(200'000, ']'), wide + "}"}) {
    EXPECT_EQ(refused_row("{\"text\": " + large + "}"),
              "f.jsonl:1:1: The line has more than 100 levels, or an object with more than 4096 "
              "keys.");
  }
}

std::string refused_conversation(std::string_view text) {
  return refusal(read_conversations(text, "c.jsonl"));
}

TEST(Conversations, AreOfThreeKinds) {
  const auto rows = read_conversations(
      "{\"text\": \"once\"}\n{\"prompt\": \"2+2\", \"completion\": \"4\"}\n"
      "{\"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}, {\"role\": \"user\", "
      "\"content\": \"hi\"}]}",
      "c.jsonl");
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(rows.value()[0].text, "once");
  EXPECT_TRUE(rows.value()[0].messages.empty());
  ASSERT_EQ(rows.value()[1].messages.size(), 2u);
  EXPECT_EQ(rows.value()[1].messages[0].role, "user");
  EXPECT_EQ(rows.value()[1].messages[1].role, "assistant");
  EXPECT_EQ(rows.value()[1].messages[1].content, "4");
  EXPECT_EQ(rows.value()[2].messages[0].role, "system");
  EXPECT_EQ(rows.value()[2].line, 3u);
}

// `row`: one line, or several that are joined.
std::string messages_in(std::string row) {
  std::ranges::replace(row, '\n', ' ');
  const auto rows = read_conversations(row, "c.jsonl");
  if (!rows.ok()) {
    return rows.status().message();
  }
  std::string out;
  for (const Message& m : rows.value()[0].messages) {
    out += m.role + ": " + m.content + '\n';
  }
  return out;
}

TEST(Conversations, MayCallTools) {
  const auto rows = read_conversations(
      R"({"messages": [{"role": "user", "content": "rain?", "name": null}, )"
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "w", "arguments": {"z": 1, "a": 2}}}]}, )"
      R"({"role": "tool", "tool_call_id": "1", "content": "no"}], "tools": "[{\"name\": \"w\"}]", )"
      R"("chat_template_kwargs": {"think": false}})",
      "c.jsonl");
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  const Conversation& c = rows.value()[0];
  EXPECT_EQ(c.tools, R"([{"name":"w"}])");
  EXPECT_EQ(c.variables, R"({"think":false})");
  EXPECT_EQ(c.keys, (std::set<std::string>{"think", "tool_call_id", "tool_calls"}));
  ASSERT_EQ(c.messages.size(), 3u);
  EXPECT_EQ(c.messages[0].json, "");
  EXPECT_EQ(
      c.messages[1].json,
      R"({"role":"assistant","tool_calls":[{"function":{"name":"w","arguments":{"z":1,"a":2}}}]})");
  EXPECT_EQ(c.messages[2].role, "tool");
  EXPECT_EQ(c.messages[2].content, "no");
  EXPECT_EQ(refused_conversation(R"({"messages": [{"role": "assistant", "tool_calls": []}]})"),
            "c.jsonl:1: There is no field \"content\".");
  EXPECT_EQ(
      refused_conversation(R"({"messages": [{"role": "user", "content": "x"}], "tools": "f"})"),
      "c.jsonl:1: Field \"tools\" is not an array of tools.");
  EXPECT_EQ(refused_conversation(
                R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": 1})"),
            "c.jsonl:1: Field \"chat_template_kwargs\" is number. It must be an object.");
}

// The text of "tools" is JSON, too.
TEST(Conversations, WithDeepToolsAreRefused) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(refused_conversation(R"({"messages": [{"role": "user", "content": "x"}], "tools": ")" +
                                 deep + "\"}"),
            "c.jsonl:1: Field \"tools\" is not an array of tools.");
}

TEST(Conversations, OfShareGptHaveSenders) {
  EXPECT_EQ(messages_in(R"({"system": "be brief", "id": 3, "conversations": [
      {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "user", "value": "c"},
      {"from": "chatgpt", "value": "d", "weight": 1}]})"),
            "system: be brief\nuser: a\nassistant: b\nuser: c\nassistant: d\n");
  EXPECT_EQ(messages_in(R"({"system": "", "conversations": [{"from": "system", "value": "s"},
      {"from": "human", "value": "a"}, {"from": "assistant", "value": "b"}]})"),
            "system: s\nuser: a\nassistant: b\n");
  EXPECT_EQ(
      messages_in(R"({"conversations": [{"from": "observation", "value": "x"}]})"),
      "c.jsonl:1: A message is from the unknown \"observation\"; there are system, human, user, "
      "gpt, chatgpt, assistant.");
  EXPECT_EQ(messages_in(R"({"conversations": [{"role": "user", "content": "x"}]})"),
            "c.jsonl:1: There is no field \"from\".");
  EXPECT_EQ(messages_in(R"({"conversations": "x"})"),
            "c.jsonl:1: Field \"conversations\" is not an array with messages.");
  EXPECT_NE(messages_in(R"({"messages": [{"role": "user", "content": "x"}], "conversations": [1]})")
                .find("A row has the key \"conversations\", which is not read."),
            std::string::npos);
  EXPECT_NE(messages_in(R"({"tools": "[{}]", "conversations": [{"from": "gpt", "value": "x"}]})")
                .find("A row has the key \"tools\", which is not read."),
            std::string::npos);
}

TEST(Conversations, OfAlpacaHaveAnInstruction) {
  EXPECT_EQ(messages_in(R"({"instruction": "add", "input": "2 2", "output": "4"})"),
            "user: add\n2 2\nassistant: 4\n");
  EXPECT_EQ(messages_in(R"({"instruction": "add", "input": "", "output": "4", "system": null})"),
            "user: add\nassistant: 4\n");
  EXPECT_EQ(messages_in(R"({"instruction": "", "input": "2+2", "output": "4"})"),
            "user: 2+2\nassistant: 4\n");
  EXPECT_EQ(messages_in(R"({"system": "s", "history": [["a", "b"], ["c", "d"]], "instruction": "e",
      "output": "f"})"),
            "system: s\nuser: a\nassistant: b\nuser: c\nassistant: d\nuser: e\nassistant: f\n");
  EXPECT_EQ(messages_in(R"({"instruction": "add"})"), "c.jsonl:1: There is no field \"output\".");
  EXPECT_EQ(messages_in(R"({"instruction": "add", "output": "4", "input": 2})"),
            "c.jsonl:1: Field \"input\" is number. It must be text.");
  EXPECT_EQ(messages_in(R"({"instruction": "a", "output": "b", "history": [["a"]]})"),
            "c.jsonl:1: An item of \"history\" is not a pair of an instruction and an answer.");
}

TEST(Conversations, AreRefusedWithTheirPlace) {
  EXPECT_EQ(
      refused_conversation("{\"texts\": \"x\"}"),
      "c.jsonl:1: The row has neither \"messages\", nor \"conversations\", nor \"prompt\" and "
      "\"completion\", nor \"instruction\" and \"output\", nor \"text\".");
  EXPECT_EQ(
      refused_conversation("{\"messages\": [{\"role\": \"robot\", \"content\": \"x\"}]}"),
      "c.jsonl:1: A message has the unknown role \"robot\"; there are system, developer, user, "
      "assistant, tool.");
  EXPECT_EQ(refused_conversation("{\"text\":\"x\"}\n{\"prompt\": \"x\"}"),
            "c.jsonl:2: There is no field \"completion\".");
  EXPECT_EQ(refused_conversation("{\"messages\": []}"),
            "c.jsonl:1: Field \"messages\" is not an array with messages.");
  EXPECT_EQ(refused_conversation("{\"messages\": [\"x\"]}"),
            "c.jsonl:1: A message is string: it is an object with \"role\" and \"content\".");
  EXPECT_EQ(refused_conversation("{\"messages\": [{\"role\": \"user\"}]}"),
            "c.jsonl:1: There is no field \"content\".");
  EXPECT_EQ(refused_conversation("{\"messages\": [{\"role\": \"user\", \"content\": null}]}"),
            "c.jsonl:1: Field \"content\" is null. It must be text.");
  EXPECT_EQ(refused_conversation(""), "\"c.jsonl\" holds no rows.");
}

}  // namespace
}  // namespace bowline::command
