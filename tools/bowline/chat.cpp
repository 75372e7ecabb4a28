// bowline chat: a conversation with a model.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/status.h"
#include "common/generation.h"
#include "common/interrupt.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct ChatOptions {
  GenerationFlags of;
  std::string system;
  std::string chat_format;
};

// Returns the local wall-clock time as if it were UTC, in seconds since 1970, because templates
// print it as UTC.
int64_t local_seconds() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  return localtime_r(&now, &parts) == nullptr ? now : now + parts.tm_gmtoff;
}

class Chat {
 public:
  Chat(const ChatOptions& options, Generation& of, text::ChatTemplate format)
      : o_(options), of_(of), format_(std::move(format)), is_terminal_(isatty(STDIN_FILENO) == 1) {
    clear();
  }

  Result<int> run() {
    if (is_terminal_) {
      print(stderr, "Ctrl-C ends an answer, Ctrl-D the conversation; /clear begins a new one.\n");
    }
    for (std::string line; !reader_left() && next_line(line);) {
      if (line == "/clear") {
        clear();
      } else if (line == "/exit") {
        break;
      } else if (!line.empty()) {
        BOWLINE_TRY(take_turn(line));
      }
    }
    return kOk;
  }

 private:
  void clear() {
    messages_.clear();
    if (!o_.system.empty()) {
      messages_.push_back({"system", o_.system});
    }
  }

  bool next_line(std::string& line) const {
    if (is_terminal_) {
      print("> ");
      flush(stdout);
    }
    line.clear();
    int c = std::getc(stdin);
    for (; c != EOF && c != '\n'; c = std::getc(stdin)) {
      line += static_cast<char>(c);
    }
    return c != EOF || !line.empty();
  }

  // On a terminal, a conversation that exceeds the context is reported and continues without the
  // last message.
  Status take_turn(const std::string& line) {
    messages_.push_back({"user", line});
    Result<Answer> a = answer_all();
    end_deferral();
    if (!a.ok()) {
      messages_.pop_back();
      const bool goes_on = a.status().code() == Code::bad_argument && is_terminal_;
      if (!goes_on) {
        return std::move(a).status();
      }
      fail(a.status());
      return {};
    }
    show(a.value());
    messages_.push_back({"assistant", a.value().text});
    return {};
  }

  // Ends the printed answer: a JSON line, or a newline and the rates.
  void show(const Answer& a) const {
    const bool is_json = o_.of.format == "json";
    if (is_json) {
      print_json_line(json_of(a));
    } else {
      print("\n");
    }
    flush(stdout);
    if (!is_json && !reader_left()) {
      print_rates(a);
    }
  }

  // The generator reuses the cached part of the conversation.
  Result<Answer> answer_all() {
    text::SpecialTokens special = text::SpecialTokens::of(of_.model);
    special.now = local_seconds();
    BOWLINE_TRY_ASSIGN(const std::string text,
                       format_.render(messages_, {.add_generation_prompt = true}, special));
    BOWLINE_TRY_ASSIGN(const text::Encoding encoded,
                       of_.tokenizer.encode(text, {.special_tokens = false}));
    defer_interrupts();
    return answer(of_, o_.of, encoded.ids, [this](std::string_view piece) {
      if (!piece.empty() && o_.of.format == "text") {
        print_answer(piece);
      }
    });
  }

  const ChatOptions& o_;
  Generation& of_;
  text::ChatTemplate format_;
  std::vector<text::ChatMessage> messages_;
  bool is_terminal_;
};

// False if the chat template ignores the system message.
bool takes_system(const text::ChatTemplate& format, const Model& model) {
  const text::ChatMessage user{"user", "x"};
  const text::ChatInputs prompt = {.add_generation_prompt = true};
  const text::SpecialTokens special = text::SpecialTokens::of(model);
  const Result<std::string> without = format.render(std::span(&user, 1), prompt, special);
  const std::vector<text::ChatMessage> both = {{"system", "y"}, user};
  const Result<std::string> with = format.render(both, prompt, special);
  return !with.ok() || !without.ok() || with.value() != without.value();
}

Result<int> run(const ChatOptions& o) {
  BOWLINE_TRY_FLAGS(check_sampling(o.of));
  watch_interrupts();
  BOWLINE_TRY_ASSIGN(const std::unique_ptr<Generation> of, Generation::open(o.of));
  BOWLINE_TRY_ASSIGN(text::ChatTemplate format, o.chat_format.empty()
                                                    ? text::ChatTemplate::from(of->model)
                                                    : text::ChatTemplate::named(o.chat_format));
  BOWLINE_TRY_FLAGS(o.of.uses.check("--system", takes_system(format, of->model),
                                    "the chat template has no system message"));
  return Chat(o, *of, std::move(format)).run();
}

}  // namespace

void add_chat(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<ChatOptions>(
      app, context, run, "chat", "Chats with a language model; reads messages from standard input",
      "# Type one message per line\n"
      "bowline chat lm.bowline --system \"Be short.\" --temp 0.7\n"
      "# One question to a tuned model\n"
      "echo \"Which knot shortens a rope?\" | \\\n"
      "    bowline chat lm.bowline --adapter adapter.bowline");
  add_generation(verb, o->of);
  verb->add_option("--system", o->system, "System message");
  add_text(verb, "--chat-format", o->chat_format, "Chat template, such as chatml [the model's]",
           "NAME");
  add_format(verb, o->of.format, "Output format of an answer");
}

}  // namespace bowline::command
