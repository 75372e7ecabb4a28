#include "data/chats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/escape.h"
#include "base/status.h"
#include "data/json_lines.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

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

Result<Message> message_of(const json& of) {
  BOWLINE_REQUIRE(of.is_object(), "A message is {}: it is an object with \"role\" and \"content\".",
                  of.type_name());
  Message m;
  BOWLINE_TRY_ASSIGN(m.role, text_of(of, "role"));
  BOWLINE_REQUIRE(std::ranges::find(kRoles, m.role) != kRoles.end(),
                  "A message has the unknown role \"{}\"; there are {}.", m.role,
                  fmt::format("{}", fmt::join(kRoles, ", ")));
  for (const auto& [key, value] : of.items()) {
    BOWLINE_TRY(key == "role" || key == "content" ? Status() : check_key("message", key, value));
  }
  BOWLINE_TRY_ASSIGN(m.content, text_of(of, "content"));
  return m;
}

Result<std::vector<Message>> messages_of(const json& row) {
  std::vector<Message> out;
  if (const auto messages = row.find("messages"); messages != row.end()) {
    BOWLINE_REQUIRE(messages->is_array() && !messages->empty(),
                    "Field \"messages\" is not an array with messages.");
    for (const json& message : *messages) {
      BOWLINE_TRY_ASSIGN(Message m, message_of(message));
      out.push_back(std::move(m));
    }
    return out;
  }
  BOWLINE_TRY_ASSIGN(std::string prompt, text_of(row, "prompt"));
  BOWLINE_TRY_ASSIGN(std::string completion, text_of(row, "completion"));
  out.push_back({"user", std::move(prompt)});
  out.push_back({"assistant", std::move(completion)});
  return out;
}

Result<Conversation> conversation_of(const json& row, size_t line) {
  Conversation c;
  c.line = line;
  const bool messages =
      row.contains("messages") || row.contains("prompt") || row.contains("completion");
  for (const char* key :
       {"tools", "functions", "documents", "system", "chat_template_kwargs", "text"}) {
    const bool other_form = key != std::string_view("text") || messages;
    if (other_form && row.contains(key)) {
      BOWLINE_TRY(check_key("row", key, row.at(key)));
    }
  }
  BOWLINE_REQUIRE(messages || row.contains("text"),
                  "The row has neither \"messages\", nor \"prompt\" and \"completion\", nor "
                  "\"text\".");
  if (messages) {
    BOWLINE_TRY_ASSIGN(c.messages, messages_of(row));
  } else {
    BOWLINE_TRY_ASSIGN(c.text, text_of(row, "text"));
  }
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
