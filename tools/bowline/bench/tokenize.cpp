#include "bench/tokenize.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "bowline_text.h"
#include "common/tokenizers.h"
#include "verb.h"

namespace bowline::command {
namespace {

// Of this thread: what other programs take does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The median of `runs` calls after one other, in seconds of the core.
Result<double> median_cpu_seconds(int runs, const std::function<Status()>& call) {
  BOWLINE_TRY(call());
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const double begin = cpu_seconds();
    BOWLINE_TRY(call());
    times.push_back(cpu_seconds() - begin);
  }
  std::ranges::nth_element(times, times.begin() + runs / 2);
  return times[static_cast<size_t>(runs / 2)];
}

}  // namespace

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

}  // namespace bowline::command
