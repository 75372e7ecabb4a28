// ChatTemplate: a template that is parsed once.
#include "base/escape.h"
#include "base/utf8.h"
#include "text/chat_formats.h"
#include "text/chat_template.h"

namespace bowline::text {

struct ChatTemplate::Template {
  std::string text;
  std::string name;
  chat::Tree tree;
};

namespace {

using chat::Value;

std::string list_of_names() {
  std::string out;
  for (const chat::NamedFormat& format : chat::named_formats()) {
    out += out.empty() ? "" : ", ";
    out += format.name;
  }
  return out;
}

std::string use_another() {
  return "- Choose another format with --chat-format: " + list_of_names() + ".";
}

Status host_memory_exhausted() { return Status(Code::out_of_memory, "Out of memory."); }

// Errors  bad_argument: the text is not valid UTF-8.
Status require_utf8(std::string_view text, std::string_view what, size_t number) {
  const std::string_view whole = text;
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) {
      return Status(Code::bad_argument, "The " + std::string(what) + " of message " +
                                            std::to_string(number) + " is not valid UTF-8 (byte " +
                                            std::to_string(whole.size() - text.size()) + ").");
    }
    text.remove_prefix(n);
  }
  return {};
}

Result<Value> value_of(chat::Heap& heap, const ChatMessage& message, size_t number) {
  BOWLINE_TRY(require_utf8(message.role, "role", number));
  BOWLINE_TRY(require_utf8(message.content, "content", number));
  return heap.dict(
      {{Value::of(std::string_view("role")), Value::of(std::string_view(message.role))},
       {Value::of(std::string_view("content")), Value::of(std::string_view(message.content))}});
}

Result<RenderedChat> rendered(const chat::Tree& tree, std::span<const ChatMessage> messages,
                              bool add_generation_prompt, const SpecialTokens& special) {
  chat::Heap heap;
  std::vector<Value> values;
  for (const ChatMessage& message : messages) {
    BOWLINE_TRY_ASSIGN(values.emplace_back(), value_of(heap, message, values.size() + 1));
  }
  std::vector<std::pair<std::string_view, Value>> globals;
  BOWLINE_TRY_ASSIGN(const Value list, heap.list(std::move(values)));
  globals.emplace_back("messages", list);
  globals.emplace_back("add_generation_prompt", Value::of(add_generation_prompt));
  globals.emplace_back("tools", Value::none());
  globals.emplace_back("documents", Value::none());
  if (!special.bos.empty()) {
    globals.emplace_back("bos_token", Value::of(std::string_view(special.bos)));
  }
  if (!special.eos.empty()) {
    globals.emplace_back("eos_token", Value::of(std::string_view(special.eos)));
  }
  for (const auto& [name, text] : special.others) {
    globals.emplace_back(name, Value::of(std::string_view(text)));
  }
  Result<RenderedChat> out = chat::render(tree, heap, std::move(globals), special.now);
  if (!out.ok() && out.status().code() == Code::bad_file) {
    return std::move(out).status().at("While rendering the chat template.\n" + use_another());
  }
  return out;
}

}  // namespace

SpecialTokens SpecialTokens::of(const Model& model) {
  SpecialTokens out = {model.metadata("bos_token"), model.metadata("eos_token")};
  for (const std::string_view name : chat::kTokenNames) {
    if (const std::string text = model.metadata(name);
        !text.empty() && name != "bos_token" && name != "eos_token") {
      out.others.emplace_back(name, text);
    }
  }
  return out;
}

Result<ChatTemplate> ChatTemplate::from(const Model& model) {
  const Result<std::vector<std::byte>> bytes = model.asset("chat_template");
  if (!bytes.ok() && bytes.status().code() == Code::bad_argument) {
    return Status(Code::bad_argument, "The model has no chat template.\n" + use_another());
  }
  if (!bytes.ok()) {
    return bytes.status();
  }
  return from_text({reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()});
}

Result<ChatTemplate> ChatTemplate::from_text(std::string_view text) {
  try {
    auto parsed = std::make_shared<Template>();
    parsed->text = text;
    parsed->tree.source = text;
    for (const chat::NamedFormat& format : chat::named_formats()) {
      if (format.text == text) {
        parsed->name = format.name;
      }
    }
    BOWLINE_TRY(chat::parse(parsed->tree).at("While reading the chat template.\n" + use_another()));
    return ChatTemplate(std::move(parsed));
  } catch (const std::bad_alloc&) {
    return host_memory_exhausted();
  }
}

Result<ChatTemplate> ChatTemplate::named(std::string_view name) {
  for (const chat::NamedFormat& format : chat::named_formats()) {
    if (format.name == name) {
      return from_text(format.text);
    }
  }
  return Status(Code::bad_argument, "There is no chat format \"" + escaped(name.substr(0, 80)) +
                                        "\"; there are " + list_of_names() + ".");
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> out;
  for (const chat::NamedFormat& format : chat::named_formats()) {
    out.emplace_back(format.name);
  }
  return out;
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt,
                                         const SpecialTokens& special) const {
  BOWLINE_TRY_ASSIGN(RenderedChat chat, render_marked(messages, add_generation_prompt, special));
  return std::move(chat.text);
}

Result<RenderedChat> ChatTemplate::render_marked(std::span<const ChatMessage> messages,
                                                 bool add_generation_prompt,
                                                 const SpecialTokens& special) const {
  try {
    return rendered(template_->tree, messages, add_generation_prompt, special);
  } catch (const std::bad_alloc&) {
    return host_memory_exhausted();
  }
}

bool ChatTemplate::marks_answers() const { return template_->tree.marks_answers; }

const std::string& ChatTemplate::name() const { return template_->name; }
const std::string& ChatTemplate::text() const { return template_->text; }

}  // namespace bowline::text
