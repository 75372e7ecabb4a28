#include "data/chats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/escape.h"
#include "base/status.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

struct Row {
  const nlohmann::json& fields;
  const std::string& name;
  size_t line;

  bool has(const char* field) const { return fields.contains(field); }
};

Result<std::string> text_of(const Row& row, const nlohmann::json& of, const char* field) {
  const auto at = of.find(field);
  BOWLINE_REQUIRE_CODE(at != of.end(), Code::bad_file, "{}:{}: There is no field \"{}\".", row.name,
                       row.line, field);
  BOWLINE_REQUIRE_CODE(at->is_string(), Code::bad_file,
                       "{}:{}: Field \"{}\" is {}. It must be text.", row.name, row.line, field,
                       at->type_name());
  return at->get<std::string>();
}

// True if a key with this value means the same as no key: it is empty, or the default weight of a
// message.
bool says_nothing(const std::string& key, const nlohmann::json& value) {
  const bool is_one = (value.is_number() && value == 1) || value == true;
  return value.is_null() || value.empty() || (value.is_string() && value == "") ||
         ((key == "weight" || key == "train") && is_one);
}

// Errors  bad_file: other templates or trainers read this key, but Bowline does not.
Status refuse(const Row& row, const char* of, const std::string& key) {
  return Status(Code::bad_file,
                fmt::format("{}:{}: A {} has the key \"{}\", which is not read. Leave it out, or "
                            "render the conversation with its template and give it as \"text\".",
                            row.name, row.line, of, escaped(key)));
}

Result<Message> message_of(const Row& row, const nlohmann::json& of) {
  BOWLINE_REQUIRE_CODE(of.is_object(), Code::bad_file,
                       "{}:{}: A message is {}: it is an object with \"role\" and \"content\".",
                       row.name, row.line, of.type_name());
  Message m;
  BOWLINE_TRY_ASSIGN(m.role, text_of(row, of, "role"));
  BOWLINE_REQUIRE_CODE(std::ranges::find(kRoles, m.role) != kRoles.end(), Code::bad_file,
                       "{}:{}: A message has the unknown role \"{}\"; there are {}.", row.name,
                       row.line, m.role, fmt::format("{}", fmt::join(kRoles, ", ")));
  for (const auto& [key, value] : of.items()) {
    if (key != "role" && key != "content" && !says_nothing(key, value)) {
      return refuse(row, "message", key);
    }
  }
  BOWLINE_TRY_ASSIGN(m.content, text_of(row, of, "content"));
  return m;
}

Result<std::vector<Message>> messages_of(const Row& row) {
  std::vector<Message> out;
  if (row.has("messages")) {
    const nlohmann::json& messages = row.fields.at("messages");
    BOWLINE_REQUIRE_CODE(messages.is_array() && !messages.empty(), Code::bad_file,
                         "{}:{}: Field \"messages\" is not an array with messages.", row.name,
                         row.line);
    for (const nlohmann::json& message : messages) {
      BOWLINE_TRY_ASSIGN(Message m, message_of(row, message));
      out.push_back(std::move(m));
    }
    return out;
  }
  BOWLINE_TRY_ASSIGN(std::string prompt, text_of(row, row.fields, "prompt"));
  BOWLINE_TRY_ASSIGN(std::string completion, text_of(row, row.fields, "completion"));
  out.push_back({"user", std::move(prompt)});
  out.push_back({"assistant", std::move(completion)});
  return out;
}

Result<Conversation> conversation_of(const Row& row) {
  Conversation c;
  c.line = row.line;
  const bool messages = row.has("messages") || row.has("prompt") || row.has("completion");
  for (const char* key :
       {"tools", "functions", "documents", "system", "chat_template_kwargs", "text"}) {
    const bool other_form = key != std::string_view("text") || messages;
    if (other_form && row.has(key) && !says_nothing(key, row.fields.at(key))) {
      return refuse(row, "row", key);
    }
  }
  BOWLINE_REQUIRE_CODE(messages || row.has("text"), Code::bad_file,
                       "{}:{}: The row has neither \"messages\", nor \"prompt\" and "
                       "\"completion\", nor \"text\".",
                       row.name, row.line);
  if (messages) {
    BOWLINE_TRY_ASSIGN(c.messages, messages_of(row));
  } else {
    BOWLINE_TRY_ASSIGN(c.text, text_of(row, row.fields, "text"));
  }
  return c;
}

}  // namespace

Result<std::vector<Conversation>> read_conversations(std::string_view bytes,
                                                     const std::string& name) {
  std::vector<Conversation> out;
  BOWLINE_TRY(
      read_json_lines(bytes, name, [&](const nlohmann::json& fields, size_t line) -> Status {
        BOWLINE_TRY_ASSIGN(Conversation c, conversation_of({fields, name, line}));
        out.push_back(std::move(c));
        return {};
      }));
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "\"{}\" holds no rows.", name);
  return out;
}

}  // namespace bowline::command
