// What `generate` and `chat` share: the model with its tokenizer, the flags of the sampler, and an
// answer that is streamed.
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

struct GenerationFlags {
  std::string model;
  DeviceFlags device;
  std::vector<std::string> stops;
  text::SamplerOptions sampler;
  Changes changes;
  int64_t context = 0;
  int64_t max_tokens = 256;
  FlagUses uses;
};
void add_generation(CLI::App* verb, GenerationFlags& flags);
// Errors  bad_argument: a flag of the sampler has no effect, as other flags are.
Status check_sampling(const GenerationFlags& flags);

// A model that generates, on its device. It stays where it is made, as the generator reads the
// model.
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
  std::vector<int32_t> ids;  // with the one that ended it
  // "stop": a token or a string that ends it; "length": --max-tokens; "context": it is full;
  // "interrupted"; "unread": the reader of standard output left.
  std::string finish_reason;
  size_t prompt = 0;         // tokens
  size_t cached = 0;         // of these
  double first_seconds = 0;  // until the first token
  double seconds = 0;        // of the tokens behind the first one
  // Tokens per second, of the prompt until the first token and of the answer behind it. None if
  // fewer than two tokens were measured: their time is that of the start, not a rate.
  std::optional<double> prompt_rate() const;
  std::optional<double> rate() const;
};

// Goes on behind `prompt`. `show` gets the text piece by piece. Ctrl-C ends it.
Result<Answer> answer(Generation& of, const GenerationFlags& flags, std::span<const int32_t> prompt,
                      const std::function<void(std::string_view)>& show);

// All of it.
nlohmann::json json_of(const Answer& answer);

// One line on stderr: rates, and the time to the first token.
void print_rates(const Answer& answer);

}  // namespace bowline::command
