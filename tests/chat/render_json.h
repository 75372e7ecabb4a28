// Renders a chat template with the variables of transformers, as one JSON object.
#pragma once

#include <bowline_text.h>

#include <nlohmann/json.hpp>

namespace bowline::text {

inline Result<RenderedChat> render_json(const std::string& text,
                                        const nlohmann::ordered_json& globals, int64_t now) {
  Result<ChatTemplate> format = ChatTemplate::from_text(text);
  if (!format.ok()) {
    return format.status();
  }
  std::vector<ChatMessage> messages;
  ChatInputs inputs;
  SpecialTokens special = {.bos = "", .eos = "", .now = now};
  auto variables = nlohmann::ordered_json::object();
  for (const auto& [name, value] : globals.items()) {
    if (name == "messages") {
      for (const auto& message : value) {
        messages.push_back({"", "", message.dump()});
      }
    } else if (name == "add_generation_prompt") {
      inputs.add_generation_prompt = value.get<bool>();
    } else if (name == "tools") {
      inputs.tools = value.is_null() ? "" : value.dump();
    } else if (name.ends_with("_token")) {
      special.others.emplace_back(name, value.get<std::string>());
    } else {
      variables[name] = value;
    }
  }
  inputs.variables = variables.dump();
  return format.value().render_marked(messages, inputs, special);
}

}  // namespace bowline::text
