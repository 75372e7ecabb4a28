// Renders chat templates for public_templates.py: reads lines of JSON {"template", "globals",
// "now"} and writes lines {"text", "answers"} or {"error"}.
#include <cstdio>
#include <iostream>

#include "chat/render_json.h"

int main() {
  using nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    const ordered_json in = ordered_json::parse(line);
    const auto out =
        bowline::text::render_json(in["template"], in["globals"], in["now"].get<int64_t>());
    ordered_json result;
    if (out.ok()) {
      result["text"] = out.value().text;
      result["answers"] = ordered_json::array();
      for (const bowline::text::Offset& answer : out.value().answers) {
        result["answers"].push_back({answer.begin, answer.end});
      }
    } else {
      result["error"] = out.status().message();
    }
    std::puts(result.dump().c_str());
  }
  return 0;
}
