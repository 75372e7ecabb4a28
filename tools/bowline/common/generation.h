// Code that `generate` and `chat` share: the model with its tokenizer, the flags of the sampler,
// and a streamed answer.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline_text.h"
#include "common/flag_uses.h"
#include "common/flags.h"

namespace bowline::command {

struct GenerationFlags : ModelOptions {
  std::vector<std::string> stops;
  text::SamplerOptions sampler;
  Changes changes;
  int64_t context = 0;
  int64_t max_tokens = 256;
  FlagUses uses;
};
void add_generation(CLI::App* verb, GenerationFlags& flags);
// Errors  bad_argument: a flag of the sampler has no effect because of the value of another flag.
Status check_sampling(const GenerationFlags& flags);

// A model on its device, with a generator. Not movable, because the generator refers to the model.
class Generation {
 public:
  // Errors  bad_argument, bad_file: the model cannot be opened, has no tokenizer or cannot
  //         generate.
  static Result<std::unique_ptr<Generation>> open(const GenerationFlags& flags);

  Model model;
  std::string device;
  text::Tokenizer tokenizer;
  std::unique_ptr<text::Generator> generator;  // never null

 private:
  Generation(Model m, std::string d, text::Tokenizer t)
      : model(std::move(m)), device(std::move(d)), tokenizer(std::move(t)) {}
};

struct Answer {
  std::string text;
  std::vector<int32_t> ids;  // includes the token that ended the answer
  // "stop": an end token or a stop string; "length": --max-tokens is reached; "context": the
  // context is full; "interrupted": Ctrl-C; "unread": the reader of standard output has closed it.
  std::string finish_reason;
  size_t prompt = 0;         // tokens of the prompt
  size_t cached = 0;         // tokens of the prompt that were in the cache
  double first_seconds = 0;  // time to the first token
  double seconds = 0;        // time for all tokens after the first
  // Tokens per second of the prompt without its cached tokens, and of the answer after its first
  // token. Empty for fewer than two tokens, because their time is mostly start-up.
  std::optional<double> prompt_rate() const;
  std::optional<double> rate() const;
};

// Generates an answer to `prompt`. Calls `show` with each part of the text. Ctrl-C ends the answer.
Result<Answer> answer(Generation& of, const GenerationFlags& flags, std::span<const int32_t> prompt,
                      const std::function<void(std::string_view)>& show);

// All fields of the answer, and the rates.
nlohmann::json json_of(const Answer& answer);

// One line on stderr: rates, and the time to the first token.
void print_rates(const Answer& answer);

}  // namespace bowline::command
