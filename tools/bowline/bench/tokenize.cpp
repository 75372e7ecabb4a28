// `bowline bench tokenize`: bytes of text per second.
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "bench/verbs.h"
#include "bowline_text.h"
#include "common/flags.h"
#include "common/timing.h"
#include "common/tokenizers.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct BenchTokenizeOptions {
  std::string tokenizer;
  std::string text;
  std::string format = "text";
  int runs = 11;
};

// Returns the CPU time of this thread, which does not count other programs.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the median CPU time of `runs` calls in seconds, after one warm-up call.
Result<double> median_cpu_seconds(int runs, const std::function<Status()>& call) {
  return median_of(runs, 1, [&]() -> Result<double> {
    const double begin = cpu_seconds();
    BOWLINE_TRY(call());
    return cpu_seconds() - begin;
  });
}

Result<int> bench_tokenize(const BenchTokenizeOptions& o) {
  BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, open_tokenizer(o.tokenizer));
  BOWLINE_TRY_ASSIGN(const std::string text, read_any(o.text));
  std::vector<int32_t> ids;
  BOWLINE_TRY_ASSIGN(const double encode, median_cpu_seconds(o.runs, [&]() -> Status {
                       BOWLINE_TRY_ASSIGN(text::Encoding e, tokenizer.encode(text));
                       ids = std::move(e.ids);
                       return {};
                     }));
  BOWLINE_TRY_ASSIGN(const double decode,
                     median_cpu_seconds(o.runs, [&] { return tokenizer.decode(ids).status(); }));
  const auto megabytes = static_cast<double>(text.size()) / 1e6;
  if (o.format == "json") {
    print_json({{"kind", std::string(tokenizer.kind())},
                {"bytes", text.size()},
                {"tokens", ids.size()},
                {"runs", o.runs},
                {"encode_mb_per_s", megabytes / encode},
                {"decode_mb_per_s", megabytes / decode}});
    return kOk;
  }
  print("{}: {} bytes, {} tokens; on one core, median of {} runs\n", std::string(tokenizer.kind()),
        text.size(), ids.size(), o.runs);
  print("encode  {:.1f} MB/s\ndecode  {:.1f} MB/s\n", megabytes / encode, megabytes / decode);
  return kOk;
}

}  // namespace

void add_bench_tokenize(CLI::App& bench, Context& context) {
  const auto [verb, o] = add_verb<BenchTokenizeOptions>(
      bench, context, bench_tokenize, "tokenize", "Times encoding and decoding on one core",
      "bowline bench tokenize tokenizer.json --text book.txt");
  verb->add_option("tokenizer", o->tokenizer, "Model file, tokenizer.json or GGUF file")
      ->required();
  add_text(verb, "--text", o->text, "File with the text; - is standard input", "FILE")->required();
  add_number(verb, "--runs", o->runs, "Timed runs, after one run to warm up", 1, 100'000);
  add_format(verb, o->format);
}

}  // namespace bowline::command
