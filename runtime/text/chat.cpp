// ChatTemplate: a template that is parsed once.
#include "base/boundary.h"
#include "base/escape.h"
#include "base/utf8.h"
#include "text/chat_input.h"
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
  for (const std::string& name : ChatTemplate::names()) {
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

std::string use_another() {
  return "- Choose another format with --chat-format: " + list_of_names() + ".";
}

// Errors  bad_argument: the text is not valid UTF-8.
Result<Value> value_of(std::string_view text, std::string_view what) {
  for (size_t at = 0; at < text.size(); at += utf8_length(text.substr(at))) {
    BOWLINE_REQUIRE(utf8_length(text.substr(at)) > 0, "The {} is not valid UTF-8 (byte {}).", what,
                    at);
  }
  return Value::of(text);
}

// Errors  bad_argument: the text is not JSON of this kind.
Result<Value> value_of_json(chat::Heap& heap, std::string_view json, chat::Kind kind,
                            std::string_view what) {
  BOWLINE_TRY_ASSIGN(const Value value, chat::value_of_json(heap, json, what));
  BOWLINE_REQUIRE(value.kind == kind, "The {} are {}, and not {}.", what,
                  chat::described(value.kind), chat::described(kind));
  return value;
}

Result<Value> value_of(chat::Heap& heap, const ChatMessage& message, size_t number) {
  if (!message.json.empty()) {
    return value_of_json(heap, message.json, chat::Kind::dict,
                         format("members of message {}", number));
  }
  BOWLINE_TRY_ASSIGN(const Value role,
                     value_of(message.role, format("role of message {}", number)));
  BOWLINE_TRY_ASSIGN(const Value content,
                     value_of(message.content, format("content of message {}", number)));
  return heap.dict({{Value::of("role"), role}, {Value::of("content"), content}});
}

using Globals = std::vector<std::pair<std::string_view, Value>>;

// Adds the variables of the program, and `documents`, which is none if the program has none.
Status add_variables(chat::Heap& heap, std::string_view json, Globals& globals) {
  const size_t defined = globals.size();
  const auto is_defined = [&](std::string_view name) {
    const auto others = std::span(globals).first(defined);
    return std::ranges::find(others, name, &Globals::value_type::first) != others.end();
  };
  if (!json.empty()) {
    BOWLINE_TRY_ASSIGN(const Value all,
                       value_of_json(heap, json, chat::Kind::dict, "variables of the template"));
    for (const auto& [name, value] : *all.dict) {
      BOWLINE_REQUIRE(!is_defined(name.text),
                      "The variable \"{}\" of the template cannot be set: it is defined already.",
                      escaped(name.text));
      globals.emplace_back(name.text, value);
    }
  }
  const auto added = std::span(globals).subspan(defined);
  if (std::ranges::find(added, "documents", &Globals::value_type::first) == added.end()) {
    globals.emplace_back("documents", Value::none());
  }
  return {};
}

Result<RenderedChat> rendered(const chat::Tree& tree, std::span<const ChatMessage> messages,
                              const ChatInputs& inputs, const SpecialTokens& special) {
  chat::Heap heap;
  std::vector<Value> values;
  for (const ChatMessage& message : messages) {
    BOWLINE_TRY_ASSIGN(values.emplace_back(), value_of(heap, message, values.size() + 1));
  }
  Globals globals;
  BOWLINE_TRY_ASSIGN(const Value list, heap.list(std::move(values)));
  globals.emplace_back("messages", list);
  globals.emplace_back("add_generation_prompt", Value::of(inputs.add_generation_prompt));
  Value tools = Value::none();
  if (!inputs.tools.empty()) {
    BOWLINE_TRY_ASSIGN(tools, value_of_json(heap, inputs.tools, chat::Kind::list, "tools"));
  }
  globals.emplace_back("tools", tools);
  const auto define = [&](std::string_view name, std::string_view text) -> Status {
    BOWLINE_TRY_ASSIGN(const Value value, value_of(text, format("special token {}", name)));
    globals.emplace_back(name, value);
    return {};
  };
  BOWLINE_TRY(special.bos.empty() ? Status() : define("bos_token", special.bos));
  BOWLINE_TRY(special.eos.empty() ? Status() : define("eos_token", special.eos));
  for (const auto& [name, text] : special.others) {
    BOWLINE_TRY(define(name, text));
  }
  BOWLINE_TRY(add_variables(heap, inputs.variables, globals));
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
  return guarded([&]() -> Result<ChatTemplate> {
    auto parsed = std::make_shared<Template>();
    parsed->text = text;
    parsed->tree.source = text;
    const auto format = std::ranges::find(chat::named_formats(), text, &chat::NamedFormat::text);
    parsed->name = format == chat::named_formats().end() ? "" : format->name;
    BOWLINE_TRY(chat::parse(parsed->tree).at("While reading the chat template.\n" + use_another()));
    return ChatTemplate(std::move(parsed));
  });
}

Result<ChatTemplate> ChatTemplate::named(std::string_view name) {
  const auto found = std::ranges::find(chat::named_formats(), name, &chat::NamedFormat::name);
  BOWLINE_REQUIRE(found != chat::named_formats().end(), "There is no chat format {}; there are {}.",
                  chat::quoted(name), list_of_names());
  return from_text(found->text);
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> out;
  for (const chat::NamedFormat& format : chat::named_formats()) {
    out.emplace_back(format.name);
  }
  return out;
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const ChatInputs& inputs,
                                         const SpecialTokens& special) const {
  BOWLINE_TRY_ASSIGN(RenderedChat chat, render_marked(messages, inputs, special));
  return std::move(chat.text);
}

Result<RenderedChat> ChatTemplate::render_marked(std::span<const ChatMessage> messages,
                                                 const ChatInputs& inputs,
                                                 const SpecialTokens& special) const {
  return guarded([&] { return rendered(template_->tree, messages, inputs, special); });
}

bool ChatTemplate::marks_answers() const { return template_->tree.marks_answers; }

const std::string& ChatTemplate::name() const { return template_->name; }
const std::string& ChatTemplate::text() const { return template_->text; }

}  // namespace bowline::text
