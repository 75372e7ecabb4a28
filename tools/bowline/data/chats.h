// JSON lines to fine-tune a chat model on, as mlx_lm reads them: each row has `text`, or `prompt`
// and `completion`, or `messages`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct Conversation {
  std::string text;               // of a row with `text`; else there are messages
  std::vector<Message> messages;  // a prompt is of the user, a completion of the assistant
  size_t line = 0;                // of its file, from 1 on
};

// `bytes` is the content of the file `name`. Errors  bad_file: see read_json_lines(); a row has
// none of these fields, or one that is
// no text; a role is unknown; there are no rows ("name:line: ...").
Result<std::vector<Conversation>> read_conversations(std::string_view bytes,
                                                     const std::string& name);

}  // namespace bowline::command
