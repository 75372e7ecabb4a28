// Arbitrary text as a chat template, with an arbitrary conversation: it is rendered within the
// limits or rejected with a status, and a second rendering gives the same. Lines that start with \1
// are messages: a role, \2, a content; or only JSON. Of the role "tools" or "variables", the
// content is JSON for ChatInputs. All other lines are the template.
#include <bowline_text.h>

namespace {

using namespace bowline;

bool reached_the_end = false;

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find("\n\1"));
  std::vector<text::ChatMessage> messages;
  text::ChatInputs inputs;
  for (size_t at = text.size(); at < input.size() && messages.size() < 16;) {
    const std::string_view message = input.substr(at + 2, input.find("\n\1", at + 2) - (at + 2));
    const size_t end = message.find('\2');
    const std::string role(message.substr(0, end));
    const std::string content(end < message.size() ? message.substr(end + 1) : "");
    if (role == "tools") {
      inputs.tools = content;
    } else if (role == "variables") {
      inputs.variables = content;
    } else if (end < message.size()) {
      messages.push_back({role, content});
    } else {
      messages.push_back({"", "", role});
    }
    at += 2 + message.size();
  }
  const auto format = text::ChatTemplate::from_text(text);
  if (!format.ok()) {
    return 0;
  }
  const text::SpecialTokens special{"<s>", "</s>", 1735732800};
  for (const bool add : {false, true}) {
    inputs.add_generation_prompt = add;
    const auto once = format.value().render(messages, inputs, special);
    const auto again = format.value().render(messages, inputs, special);
    if (once.ok() != again.ok() || (once.ok() && once.value() != again.value())) {
      __builtin_trap();
    }
    reached_the_end = reached_the_end || (once.ok() && !once.value().empty());
  }
  return 0;
}
