#include "common/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "common/help.h"
#include "common/interrupt.h"
#include "common/numbers.h"
#include "common/strings.h"
#include "common/timing.h"
#include "common/tokenizers.h"
#include "verb.h"

namespace bowline::command {
namespace {

// The largest context that is used by default.
constexpr int64_t kContext = 4096;
// Prompt tokens between two checks for Ctrl-C.
constexpr size_t kPrompt = 256;

// Returns kContext if the context of the model is longer, else 0. With 0 the generator reads the
// context of the model and reports errors.
int64_t usual_context(const Model& model) {
  const std::string length = model.metadata("context_length");
  return length.size() > 4 || (length.size() == 4 && length > std::to_string(kContext)) ? kContext
                                                                                        : 0;
}

// Rotary positions work beyond context_length, but the model was not trained there.
void note_context(const Model& model, int64_t context) {
  const auto length = number_in<int64_t>(model.metadata("context_length"));
  if (const int64_t made_for = length.value_or(context); context > made_for) {
    print(stderr,
          "bowline: --ctx-size {} exceeds the context_length of the model ({}). Text after the "
          "first {} tokens may make no sense. Use --ctx-size {} or less.\n",
          context, made_for, made_for, made_for);
  }
}

// Makes the prompt the text of the generator. Returns false after Ctrl-C.
Result<bool> read_prompt(text::Generator& g, std::span<const int32_t> prompt, Answer& answer) {
  const auto same =
      static_cast<size_t>(std::ranges::mismatch(prompt, g.tokens()).in1 - prompt.begin());
  size_t read = std::min(prompt.size(), same + kPrompt);
  BOWLINE_TRY_ASSIGN(answer.cached, g.replace(prompt.first(read)));
  while (read < prompt.size() && !interrupted()) {
    const size_t piece = std::min(kPrompt, prompt.size() - read);
    BOWLINE_TRY(g.feed(prompt.subspan(read, piece)));
    read += piece;
  }
  return read == prompt.size();
}

// Returns the reason why the answer ends after its last token. Empty: it continues.
std::string reason_to_end(const text::Generator& g, const GenerationFlags& flags,
                          const Answer& answer, const text::StopStrings& stops) {
  if (g.is_stop(answer.ids.back()) || stops.stopped()) {
    return "stop";
  }
  if (interrupted()) {
    return "interrupted";
  }
  if (reader_left()) {
    return "unread";
  }
  if (std::cmp_greater_equal(answer.ids.size(), flags.max_tokens)) {
    return "length";
  }
  return g.has_room() ? "" : "context";
}

}  // namespace

void add_generation(CLI::App* verb, GenerationFlags& o) {
  verb->add_option("model", o.model, "Model file of a language model")->required();
  add_number(verb, "-n,--max-tokens", o.max_tokens, "Maximum number of new tokens", 1, INT32_MAX);
  add_number(verb, "--temp", o.sampler.temperature, "Sampling temperature; 0: most probable token",
             0, 1e6);
  add_number(verb, "--top-k", o.sampler.top_k, "Sample from the N most probable tokens; 0: all", 0,
             INT32_MAX);
  add_number(verb, "--top-p", o.sampler.top_p, "Nucleus sampling: probability mass to keep", 1e-9,
             1);
  add_number(verb, "--seed", o.sampler.seed, "Random seed of sampling", 0, UINT64_MAX);
  verb->add_option("--stop", o.stops, "End the answer at this text; repeatable");
  add_changes(verb, o.changes);
  add_device(verb, o.device);
  const AdvancedFlags advanced(verb);
  verb->add_option("--ctx-size", o.context,
                   fmt::format("Context length in tokens [min(model's, {})]", kContext))
      ->check(whole_number(1, INT32_MAX));
  add_number(verb, "--min-p", o.sampler.min_p, "Minimum probability, relative to the largest", 0,
             1);
  add_number(verb, "--repetition-penalty,--repeat-penalty", o.sampler.repetition_penalty,
             "Penalty factor for recent tokens; 1: none", 1, 1e6);
  add_number(verb, "--repetition-context-size,--repeat-last-n", o.sampler.repetition_window,
             "Number of tokens that the penalty covers", 0, INT32_MAX);
  o.uses = FlagUses(verb);
}

Status check_sampling(const GenerationFlags& o) {
  for (const char* flag : {"--top-k", "--top-p", "--min-p", "--seed"}) {
    BOWLINE_TRY(
        o.uses.check(flag, o.sampler.temperature != 0,
                     "--temp 0 always takes the most probable token. Give a --temp above 0"));
  }
  return o.uses.check("--repetition-context-size", o.sampler.repetition_penalty != 1,
                      "with --repetition-penalty 1 no token is penalized");
}

Result<std::unique_ptr<Generation>> Generation::open(const GenerationFlags& flags) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(flags.model));
  BOWLINE_TRY_ASSIGN(text::Tokenizer tokenizer, tokenizer_of(model));
  BOWLINE_TRY_ASSIGN(const Device device, open_device(flags.device));
  BOWLINE_TRY(change(model, flags.changes));
  BOWLINE_TRY(model.to(device));
  text::GeneratorOptions options;
  options.context = flags.context == 0 ? usual_context(model) : flags.context;
  options.sampler = flags.sampler;
  std::unique_ptr<Generation> out(
      new Generation(std::move(model), device.info().name, std::move(tokenizer)));
  BOWLINE_TRY_ASSIGN(text::Generator generator,
                     text::Generator::create(out->model, device, options));
  out->generator = std::make_unique<text::Generator>(std::move(generator));
  note_context(out->model, flags.context);
  return out;
}

namespace {

std::optional<double> rate_of(size_t tokens, double seconds) {
  return tokens > 1 && seconds > 0 ? std::optional(static_cast<double>(tokens) / seconds)
                                   : std::nullopt;
}

}  // namespace

std::optional<double> Answer::prompt_rate() const {
  return ids.empty() ? std::nullopt : rate_of(prompt - cached, first_seconds);
}

std::optional<double> Answer::rate() const {
  return ids.empty() ? std::nullopt : rate_of(ids.size() - 1, seconds);
}

Result<Answer> answer(Generation& of, const GenerationFlags& flags, std::span<const int32_t> prompt,
                      const std::function<void(std::string_view)>& show) {
  text::Generator& g = *of.generator;
  BOWLINE_REQUIRE(!prompt.empty(), "The prompt has no tokens.");
  BOWLINE_REQUIRE(
      std::cmp_less_equal(prompt.size(), g.context()),
      "The prompt has {} tokens, more than the context ({}). Shorten it, or raise --ctx-size.",
      prompt.size(), g.context());
  Answer out;
  out.prompt = prompt.size();
  text::Decoder decoder = of.tokenizer.stream();
  text::StopStrings stops(flags.stops);
  const auto shown = [&](const std::string& piece) {
    out.text += piece;
    show(piece);
  };
  const auto begin = Clock::now();
  BOWLINE_TRY_ASSIGN(const bool is_read, read_prompt(g, prompt, out));
  out.finish_reason = is_read ? "" : "interrupted";
  while (out.finish_reason.empty()) {
    BOWLINE_TRY_ASSIGN(const int32_t id, g.next());
    out.ids.push_back(id);
    if (out.ids.size() == 1) {
      out.first_seconds = seconds_since(begin);
    }
    if (!g.is_stop(id)) {
      BOWLINE_TRY_ASSIGN(const std::string piece, decoder.next(id));
      shown(stops.add(piece));
    }
    out.finish_reason = reason_to_end(g, flags, out, stops);
  }
  out.seconds = seconds_since(begin) - out.first_seconds;
  if (!stops.stopped()) {
    shown(stops.add(decoder.flush()));
    shown(stops.flush());
  }
  return out;
}

nlohmann::json json_of(const Answer& a) {
  const auto known = [](const std::optional<double>& rate) {
    return rate ? nlohmann::json(*rate) : nlohmann::json();
  };
  return {{"prompt_tokens", a.prompt},
          {"tokens", a.ids},
          {"text", a.text},
          {"finish_reason", a.finish_reason},
          {"prompt_tokens_per_second", known(a.prompt_rate())},
          {"first_token_seconds", a.first_seconds},
          {"tokens_per_second", known(a.rate())}};
}

void print_rates(const Answer& a) {
  const auto shown = [](const std::optional<double>& rate) {
    return rate ? fmt::format(", {:.1f} tokens/s", *rate) : "";
  };
  print(stderr,
        "prompt  {} tokens, {} of them from the cache{}\n"
        "answer  {} tokens{}, the first one after {:.3f} s ({})\n",
        a.prompt, a.cached, shown(a.prompt_rate()), a.ids.size(), shown(a.rate()), a.first_seconds,
        a.finish_reason);
}

}  // namespace bowline::command
