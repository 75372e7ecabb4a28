// Reads conversations from JSON lines. A row has one of these forms:
// - `messages`, with `role` and `content`, and perhaps `tools`: Hugging Face and mlx_lm
// - `conversations`, with `from` and `value`: ShareGPT
// - `prompt` and `completion`: mlx_lm
// - `instruction`, `output`, and perhaps `input` and `history`: Alpaca
// - `text`
// ShareGPT and Alpaca rows may have `system`. Source for both: LLaMA-Factory (data/README.md).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct Message {
  std::string role;  // "system", "developer", "user", "assistant" or "tool"
  std::string content;
  std::string json = {};  // the whole message, if it has more than a role and a content
};

struct Conversation {
  std::string text;  // set if the row has `text`; otherwise `messages` is set
  std::vector<Message> messages;
  std::string tools;           // a JSON array, or empty
  std::string variables;       // of the chat template: a JSON object, or empty
  std::set<std::string> keys;  // of messages and variables, which the chat template must read
  size_t line = 0;             // line number in the file, from 1
};

// `bytes`: the content of the file `name`.
// Errors  as read_json_lines(). bad_file: a row has none of these forms, a key that is not read, a
//         field that is not text, or an unknown role ("name:line: ..."); or there are no rows.
Result<std::vector<Conversation>> read_conversations(std::string_view bytes,
                                                     const std::string& name);

}  // namespace bowline::command
