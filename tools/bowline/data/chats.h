// Reads conversations from JSON lines in the format of mlx_lm. Each row has `text`, or `prompt` and
// `completion`, or `messages`.
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
  std::string text;               // set if the row has `text`; otherwise `messages` is set
  std::vector<Message> messages;  // `prompt` has the role user, `completion` the role assistant
  size_t line = 0;                // line number in the file, from 1
};

// `bytes`: the content of the file `name`.
// Errors  as read_json_lines(). bad_file: a row has none of these fields, a field is not a text, a
//         role is unknown ("name:line: ..."), or there are no rows.
Result<std::vector<Conversation>> read_conversations(std::string_view bytes,
                                                     const std::string& name);

}  // namespace bowline::command
