#include "data/chats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/escape.h"
#include "base/projected.h"
#include "base/status.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

using json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
// What chat templates read of a message besides its role and its content.
constexpr std::array<std::string_view, 5> kMessageKeys = {"tool_calls", "tool_call_id", "name",
                                                          "reasoning_content", "thinking"};

// The names of the roles in `from`.
struct Sender {
  std::string_view name;
  std::string_view role;
};
constexpr std::array<Sender, 6> kSenders = {{{"system", "system"},
                                             {"human", "user"},
                                             {"user", "user"},
                                             {"gpt", "assistant"},
                                             {"chatgpt", "assistant"},
                                             {"assistant", "assistant"}}};

// read_json_lines() adds the place to the errors of these functions.

Result<std::string> text_of(const json& of, const char* field) {
  const auto at = of.find(field);
  BOWLINE_REQUIRE(at != of.end(), "There is no field \"{}\".", field);
  BOWLINE_REQUIRE(at->is_string(), "Field \"{}\" is {}. It must be text.", field, at->type_name());
  return at->get<std::string>();
}

// True if a key with this value means the same as no key: it is empty, or the default weight of a
// message.
bool says_nothing(const std::string& key, const json& value) {
  const bool is_one = (value.is_number() && value == 1) || value == true;
  return value.is_null() || value.empty() || (value.is_string() && value == "") ||
         ((key == "weight" || key == "train") && is_one);
}

// Errors  bad_argument: other templates or trainers read this key, but Bowline does not.
Status check_key(const char* of, const std::string& key, const json& value) {
  BOWLINE_REQUIRE(says_nothing(key, value),
                  "A {} has the key \"{}\", which is not read. Leave it out, or render the "
                  "conversation with its template and give it as \"text\".",
                  of, escaped(key));
  return {};
}

// Adds the keys that the chat template must read.
Result<Message> message_of(const json& of, std::set<std::string>& keys) {
  BOWLINE_REQUIRE(of.is_object(), "A message is {}: it is an object with \"role\" and \"content\".",
                  of.type_name());
  Message m;
  BOWLINE_TRY_ASSIGN(m.role, text_of(of, "role"));
  BOWLINE_REQUIRE(std::ranges::find(kRoles, m.role) != kRoles.end(),
                  "A message has the unknown role \"{}\"; there are {}.", m.role,
                  fmt::format("{}", fmt::join(kRoles, ", ")));
  bool has_more = false;
  for (const auto& [key, value] : of.items()) {
    if (std::ranges::find(kMessageKeys, key) == kMessageKeys.end()) {
      BOWLINE_TRY(key == "role" || key == "content" ? Status() : check_key("message", key, value));
    } else if (!says_nothing(key, value)) {
      keys.insert(key);
      has_more = true;
    }
  }
  // A message that calls tools needs no content.
  const auto calls = of.find("tool_calls");
  const bool needs_content = calls == of.end() || says_nothing("tool_calls", *calls);
  if (const auto content = of.find("content");
      needs_content || (content != of.end() && !content->is_null())) {
    BOWLINE_TRY_ASSIGN(m.content, text_of(of, "content"));
  }
  m.json = has_more ? of.dump() : "";
  return m;
}

// A message of ShareGPT.
Result<Message> sent_message_of(const json& of, std::set<std::string>& /*keys*/) {
  BOWLINE_REQUIRE(of.is_object(), "A message is {}: it is an object with \"from\" and \"value\".",
                  of.type_name());
  BOWLINE_TRY_ASSIGN(const std::string from, text_of(of, "from"));
  const auto sender = std::ranges::find(kSenders, from, &Sender::name);
  BOWLINE_REQUIRE(sender != kSenders.end(), "A message is from the unknown \"{}\"; there are {}.",
                  from, fmt::format("{}", fmt::join(projected(kSenders, &Sender::name), ", ")));
  for (const auto& [key, value] : of.items()) {
    BOWLINE_TRY(key == "from" || key == "value" ? Status() : check_key("message", key, value));
  }
  BOWLINE_TRY_ASSIGN(std::string value, text_of(of, "value"));
  return Message{std::string(sender->role), std::move(value)};
}

Status read_messages(const json& row, const char* field,
                     Result<Message> (*read)(const json&, std::set<std::string>&),
                     Conversation& out) {
  const json& messages = row.at(field);
  BOWLINE_REQUIRE(messages.is_array() && !messages.empty(),
                  "Field \"{}\" is not an array with messages.", field);
  for (const json& message : messages) {
    BOWLINE_TRY_ASSIGN(Message m, read(message, out.keys));
    out.messages.push_back(std::move(m));
  }
  return {};
}

Status read_pair(const json& row, const char* question, const char* answer, Conversation& out) {
  BOWLINE_TRY_ASSIGN(std::string asked, text_of(row, question));
  BOWLINE_TRY_ASSIGN(std::string answered, text_of(row, answer));
  out.messages.push_back({"user", std::move(asked)});
  out.messages.push_back({"assistant", std::move(answered)});
  return {};
}

Status read_alpaca(const json& row, Conversation& out) {
  if (const auto history = row.find("history"); history != row.end() && !history->is_null()) {
    BOWLINE_REQUIRE(history->is_array(), "Field \"history\" is {}. It is an array of pairs.",
                    history->type_name());
    for (const json& pair : *history) {
      BOWLINE_REQUIRE(
          pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string(),
          "An item of \"history\" is not a pair of an instruction and an answer.");
      out.messages.push_back({"user", pair[0].get<std::string>()});
      out.messages.push_back({"assistant", pair[1].get<std::string>()});
    }
  }
  BOWLINE_TRY(read_pair(row, "instruction", "output", out));
  if (const auto input = row.find("input"); input != row.end() && !input->is_null()) {
    BOWLINE_TRY_ASSIGN(const std::string more, text_of(row, "input"));
    std::string& instruction = out.messages[out.messages.size() - 2].content;
    instruction += more.empty() ? "" : (instruction.empty() ? more : '\n' + more);
  }
  return {};
}

// Whether the rows of a form have a system prompt beside the messages and tools, and how the
// messages are read.
struct Form {
  const char* key;
  bool has_system;
  bool has_tools;
  Status (*read)(const json& row, Conversation& out);
};
constexpr std::array<Form, 5> kForms = {{
    {"messages", false, true,
     [](const json& row, Conversation& out) {
       return read_messages(row, "messages", message_of, out);
     }},
    {"conversations", true, false,
     [](const json& row, Conversation& out) {
       return read_messages(row, "conversations", sent_message_of, out);
     }},
    {"prompt", false, true,
     [](const json& row, Conversation& out) {
       return read_pair(row, "prompt", "completion", out);
     }},
    {"completion", false, true,
     [](const json& row, Conversation& out) {
       return read_pair(row, "prompt", "completion", out);
     }},
    {"instruction", true, false, read_alpaca},
}};

// Null if the text is not JSON that can be handled.
json tools_in(const std::string& text) {
  try {
    bool fits = true;
    json tools = parse_bounded(text, fits);
    return fits ? tools : json();
  } catch (const json::exception&) {
    return {};
  }
}

// Data sets also store `tools` as text.
Status read_tools(const json& row, Conversation& out) {
  if (const auto at = row.find("tools"); at != row.end() && !says_nothing("tools", *at)) {
    const json tools = at->is_string() ? tools_in(at->get_ref<const std::string&>()) : *at;
    BOWLINE_REQUIRE(tools.is_array(), "Field \"tools\" is not an array of tools.");
    out.tools = tools.empty() ? "" : tools.dump();
  }
  if (const auto at = row.find("chat_template_kwargs");
      at != row.end() && !says_nothing("chat_template_kwargs", *at)) {
    BOWLINE_REQUIRE(at->is_object(), "Field \"chat_template_kwargs\" is {}. It must be an object.",
                    at->type_name());
    for (const auto& [key, value] : at->items()) {
      out.keys.insert(key);
    }
    out.variables = at->dump();
  }
  return {};
}

Result<Conversation> conversation_of(const json& row, size_t line) {
  Conversation c;
  c.line = line;
  const auto form =
      std::ranges::find_if(kForms, [&](const Form& f) { return row.contains(f.key); });
  const bool is_chat = form != kForms.end();
  BOWLINE_REQUIRE(is_chat || row.contains("text"),
                  "The row has neither \"messages\", nor \"conversations\", nor \"prompt\" and "
                  "\"completion\", nor \"instruction\" and \"output\", nor \"text\".");
  const bool has_system = is_chat && form->has_system;
  const bool has_tools = is_chat && form->has_tools;
  const std::array<std::pair<std::string_view, bool>, 7> read = {
      {{"tools", has_tools},
       {"chat_template_kwargs", has_tools},
       {"functions", false},
       {"documents", false},
       {"system", has_system},
       {"conversations", is_chat && form->key == std::string_view("conversations")},
       {"text", !is_chat}}};
  for (const auto& [key, is_read] : read) {
    if (const auto at = row.find(key); !is_read && at != row.end()) {
      BOWLINE_TRY(check_key("row", std::string(key), *at));
    }
  }
  if (!is_chat) {
    BOWLINE_TRY_ASSIGN(c.text, text_of(row, "text"));
    return c;
  }
  if (const auto system = row.find("system");
      has_system && system != row.end() && !system->is_null()) {
    BOWLINE_TRY_ASSIGN(std::string text, text_of(row, "system"));
    if (!text.empty()) {
      c.messages.push_back({"system", std::move(text)});
    }
  }
  BOWLINE_TRY(form->read(row, c));
  BOWLINE_TRY(read_tools(row, c));
  return c;
}

}  // namespace

Result<std::vector<Conversation>> read_conversations(std::string_view bytes,
                                                     const std::string& name) {
  std::vector<Conversation> out;
  BOWLINE_TRY(read_json_lines(bytes, name, [&](const json& row, size_t line) -> Status {
    BOWLINE_TRY_ASSIGN(Conversation c, conversation_of(row, line));
    out.push_back(std::move(c));
    return {};
  }));
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "\"{}\" holds no rows.", name);
  return out;
}

}  // namespace bowline::command
