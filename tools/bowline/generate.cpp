// bowline generate: generates text from a prompt.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/interrupt.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct GenerateOptions {
  GenerationFlags of;
  std::string prompt = "-";
};

Result<int> run(const GenerateOptions& o) {
  BOWLINE_TRY_FLAGS(check_sampling(o.of));
  watch_interrupts();
  BOWLINE_TRY_ASSIGN(const std::string prompt,
                     o.prompt == "-" ? read_stdin() : Result<std::string>(o.prompt));
  BOWLINE_TRY_ASSIGN(const std::unique_ptr<Generation> of, Generation::open(o.of));
  BOWLINE_TRY_ASSIGN(const text::Encoding encoded, of->tokenizer.encode(prompt));
  const bool is_json = o.of.format == "json";
  defer_interrupts();
  BOWLINE_TRY_ASSIGN(const Answer a, answer(*of, o.of, encoded.ids, [&](std::string_view piece) {
                       if (!is_json && !piece.empty()) {
                         print_answer(piece);
                       }
                     }));
  if (is_json) {
    nlohmann::json out = json_of(a);
    out["device"] = of->device;
    print_json(out);
  } else {
    print("\n");
    flush(stdout);
    if (!reader_left()) {
      print_rates(a);
    }
  }
  return a.finish_reason == "interrupted" ? kInterrupted : kOk;
}

}  // namespace

void add_generate(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<GenerateOptions>(
      app, context, run, "generate", "Generates text from a prompt",
      "bowline generate lm.bowline \"Once upon a time\" --max-tokens 100\n"
      "# Sample, with an adapter\n"
      "bowline generate lm.bowline \"Once upon a time\" \\\n"
      "    --adapter adapter.bowline --temp 0.8 --top-p 0.95");
  add_generation(verb, o->of);
  verb->add_option("prompt", o->prompt, "Prompt; - reads it from standard input [-]");
  add_format(verb, o->of.format);
}

}  // namespace bowline::command
