// Tokenizers, chat templates and generation.
#include <exception>

#include "support.h"

namespace bowline::python {
namespace {

using namespace nb::literals;

text::SamplerOptions sampler_of(float temperature, int32_t top_k, float top_p, float min_p,
                                float repetition_penalty, int32_t repetition_window,
                                uint64_t seed) {
  return {temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, seed};
}

// Empty for None.
std::string json_of(const nb::object& value) {
  return value.is_none() ? std::string()
                         : nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(value));
}

std::vector<text::ChatMessage> messages_of(const std::vector<nb::dict>& from) {
  std::vector<text::ChatMessage> out;
  for (const nb::dict& message : from) {
    if (!message.contains("role") || (message.size() == 1 && !message.contains("content"))) {
      throw Failure{Status(Code::bad_argument, "A message needs \"role\" and \"content\".")};
    }
    out.push_back({"", "", json_of(message)});
  }
  return out;
}

std::vector<int32_t> generate(text::Generator& g, const std::vector<int32_t>& prompt,
                              size_t max_tokens) {
  take(unlocked([&] { return g.replace(prompt); }));
  std::vector<int32_t> out;
  while (out.size() < max_tokens && g.has_room()) {
    check_signals();
    out.push_back(take(unlocked([&] { return g.next(); })));
    if (g.is_stop(out.back())) {
      break;
    }
  }
  return out;
}

void add_tokenizer(nb::module_& module) {
  nb::class_<text::Tokenizer>(module, "Tokenizer", "Converts text to tokens and tokens to text.")
      .def_static(
          "of", [](PyModel& model) { return take(text::Tokenizer::from(model.model)); }, "model"_a,
          "Returns the tokenizer of a model.")
      .def_static("of_bytes", &text::Tokenizer::of_bytes,
                  "Returns a tokenizer with 256 tokens: the id of a token is its byte.")
      .def_static(
          "from_json",
          [](const std::string& json) {
            return take(text::Tokenizer::from_bytes(
                "application/vnd.huggingface.tokenizer+json",
                {reinterpret_cast<const std::byte*>(json.data()), json.size()}));
          },
          "json"_a, "Reads the text of a tokenizer.json.")
      .def(
          "encode",
          [](const text::Tokenizer& t, const std::string& text, bool special_tokens,
             bool parse_special, size_t max_tokens) {
            return take(t.encode(text, {special_tokens, parse_special, max_tokens})).ids;
          },
          "text"_a, nb::kw_only(), "special_tokens"_a = true, "parse_special"_a = true,
          "max_tokens"_a = 0, "Converts text to token ids.")
      .def(
          "decode",
          [](const text::Tokenizer& t, const std::vector<int32_t>& ids, bool skip_special) {
            return take(t.decode(ids, skip_special));
          },
          "ids"_a, nb::kw_only(), "skip_special"_a = true, "Converts token ids to text.")
      .def("token_to_id", &text::Tokenizer::token_to_id, "token"_a,
           "Returns the id of a token, or None.")
      .def("id_to_token", &text::Tokenizer::id_to_token, "id"_a,
           "Returns the token of an id as the vocabulary spells it.")
      .def("is_special", &text::Tokenizer::is_special, "id"_a,
           "Returns True if the id is a special token.")
      .def_prop_ro("kind", &text::Tokenizer::kind, "For example \"byte-level BPE\".")
      .def("__len__", &text::Tokenizer::size);
}

void add_chat(nb::module_& module) {
  nb::class_<text::ChatTemplate>(module, "ChatTemplate", "Renders a conversation as one text.")
      .def_static(
          "of", [](PyModel& model) { return take(text::ChatTemplate::from(model.model)); },
          "model"_a, "Returns the chat template of a model.")
      .def_static(
          "named", [](const std::string& name) { return take(text::ChatTemplate::named(name)); },
          "name"_a, "Returns a template of the library, for example \"chatml\".")
      .def_static("names", &text::ChatTemplate::names, "Returns the names of these templates.")
      .def_static(
          "from_text",
          [](const std::string& source) { return take(text::ChatTemplate::from_text(source)); },
          "source"_a, "Parses a template.")
      .def(
          "render",
          [](const text::ChatTemplate& t, const std::vector<nb::dict>& messages,
             bool add_generation_prompt, const nb::object& tools, const nb::object& variables,
             const std::string& bos, const std::string& eos) {
            text::SpecialTokens special;
            special.bos = bos;
            special.eos = eos;
            const text::ChatInputs inputs = {add_generation_prompt, json_of(tools),
                                             json_of(variables)};
            return take(t.render(messages_of(messages), inputs, special));
          },
          "messages"_a, nb::kw_only(), "add_generation_prompt"_a = true, "tools"_a = nb::none(),
          "variables"_a = nb::none(), "bos"_a = "", "eos"_a = "",
          "Renders messages, which are dicts with role, content, and what else the template reads, "
          "for example tool_calls.\n\ntools: a list with the descriptions of the tools. variables: "
          "a dict with other variables of the template, for example {\"enable_thinking\": False}.");
}

}  // namespace

void add_text(nb::module_& module) {
  add_tokenizer(module);
  add_chat(module);
  nb::class_<text::Generator>(module, "Generator", "Generates text token by token.")
      .def(
          "__init__",
          [](text::Generator* self, PyModel& model, const Device& device, int64_t context,
             const std::optional<std::string>& compute_dtype,
             const std::optional<std::vector<int32_t>>& stop_ids, float temperature, int32_t top_k,
             float top_p, float min_p, float repetition_penalty, int32_t repetition_window,
             uint64_t seed) {
            text::GeneratorOptions options;
            options.context = context;
            options.compute_dtype = optional_dtype(compute_dtype);
            options.stop_ids = stop_ids;
            options.sampler = sampler_of(temperature, top_k, top_p, min_p, repetition_penalty,
                                         repetition_window, seed);
            new (self) text::Generator(take(
                unlocked([&] { return text::Generator::create(model.model, device, options); })));
          },
          "model"_a, "device"_a, nb::kw_only(), "context"_a = 0, "compute_dtype"_a = nb::none(),
          "stop_ids"_a = nb::none(), "temperature"_a = 0.0f, "top_k"_a = 0, "top_p"_a = 1.0f,
          "min_p"_a = 0.0f, "repetition_penalty"_a = 1.0f, "repetition_window"_a = 64, "seed"_a = 0,
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          "Makes a generator. A model can have one generator at a time.")
      .def("generate", &generate, "prompt"_a, "max_tokens"_a = 128,
           "Replaces the text by prompt, and returns up to max_tokens new tokens. Ctrl-C raises "
           "KeyboardInterrupt between two tokens.")
      .def(
          "feed",
          [](text::Generator& g, const std::vector<int32_t>& ids) {
            check(unlocked([&] { return g.feed(ids); }));
          },
          "ids"_a, "Appends tokens to the text.")
      .def(
          "next", [](text::Generator& g) { return take(unlocked([&] { return g.next(); })); },
          "Chooses the next token, appends it and returns it.")
      .def(
          "rewind", [](text::Generator& g, size_t length) { check(g.rewind(length)); }, "length"_a,
          "Truncates the text.")
      .def_prop_ro(
          "tokens",
          [](const text::Generator& g) {
            const auto tokens = g.tokens();
            return std::vector<int32_t>(tokens.begin(), tokens.end());
          },
          "The tokens of the text.")
      .def("is_stop", &text::Generator::is_stop, "id"_a, "Returns True if a token ends a text.")
      .def_prop_ro("has_room", &text::Generator::has_room, "Whether the context has room.")
      .def_prop_ro("context", &text::Generator::context, "Size of the context in tokens.")
      .def("cancel", &text::Generator::cancel, "Cancels the running call. Any thread may call it.");
}

}  // namespace bowline::python
