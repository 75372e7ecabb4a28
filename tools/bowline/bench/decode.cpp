// `bowline bench decode`: tokens per second, compared with the limit of the memory bandwidth.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "base/status.h"
#include "bench/floor.h"
#include "bench/verbs.h"
#include "bowline_text.h"
#include "common/flags.h"
#include "common/report.h"
#include "common/timing.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct BenchDecodeOptions : ModelOptions {
  Changes changes;
  int64_t prompt = 32;
  int64_t tokens = 128;
  bool no_floor = false;
};

// The memory that one token reads.
struct Traffic {
  uint64_t weights = 0;      // bytes, each storage once
  uint64_t cache_entry = 0;  // bytes of the KV cache per cached token
};

// The one row that an Embedding reads is not counted. A tied head reads the whole table, which is
// counted.
Traffic traffic_of(const ModelInfo& model, const PlanInfo& plan) {
  std::set<uint32_t> read;
  const auto decode = std::ranges::find(plan.segments, "decode",
                                        [](const SegmentInfo& s) { return s.entry_point.name; });
  for (const RecordInfo& r : decode->records) {
    for (const OperandInfo& o : r.inputs) {
      if (r.op == "Embedding") {
        continue;
      }
      if (o.slot == OperandInfo::Slot::storage) {
        read.insert(o.number);
      } else if (o.slot == OperandInfo::Slot::table) {
        for (const TableEntryInfo& e : decode->tables[o.number]) {
          read.insert(e.number);
        }
      }
    }
  }
  Traffic out;
  for (const uint32_t tie : read) {
    const StorageInfo& s = model.storages[tie];
    if (s.role != StorageRole::kv_cache) {
      out.weights += s.bytes;
    } else if (!s.shape.size() || s.shape[0] > 0) {
      out.cache_entry += s.bytes / static_cast<uint64_t>(s.shape[0]);
    }
  }
  return out;
}

struct Measured {
  double prompt_seconds = 0;
  std::vector<double> seconds;  // of each generated token
  double median = 0;

  // Returns the mean time of tokens [begin, end), in seconds.
  double mean(size_t begin, size_t end) const {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += seconds[i];
    }
    return sum / static_cast<double>(end - begin);
  }
};

Result<Measured> measure(text::Generator& g, const BenchDecodeOptions& o, int64_t vocabulary) {
  std::vector<int32_t> prompt;
  for (uint32_t i = 0; std::cmp_less(i, o.prompt); ++i) {
    const RandomBlock r = philox({i, 0, 0, 0}, {1, 1});
    prompt.push_back(static_cast<int32_t>(r[0] % static_cast<uint64_t>(vocabulary)));
  }
  // Warm-up: the first access to memory is slow.
  BOWLINE_TRY(g.feed(prompt));
  BOWLINE_TRY(g.next().status());
  BOWLINE_TRY(g.rewind(0));
  Measured m;
  BOWLINE_TRY_ASSIGN(m.prompt_seconds, seconds_of([&] { return g.feed(prompt); }));
  for (int64_t i = 0; i < o.tokens; ++i) {
    BOWLINE_TRY_ASSIGN(const double seconds, seconds_of([&] { return g.next().status(); }));
    m.seconds.push_back(seconds);
  }
  m.median = median(m.seconds);
  return m;
}

int64_t vocabulary_of(const PlanInfo& plan) {
  for (const IoInfo& output : plan.segments[0].outputs) {
    if (output.name == "logits") {
      return output.shape[1];
    }
  }
  return 1;
}

Result<int> bench_decode(const BenchDecodeOptions& o) {
  BOWLINE_TRY_ASSIGN(Model model, open_to_measure(o.model));
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY(change(model, o.changes));
  BOWLINE_TRY(model.to(device));
  text::GeneratorOptions options;
  options.context = o.prompt + o.tokens;
  BOWLINE_TRY_ASSIGN(text::Generator g, text::Generator::create(model, device, options));
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, g.describe());
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const Traffic traffic = traffic_of(info, plan);
  BOWLINE_TRY_ASSIGN(const Measured m, measure(g, o, vocabulary_of(plan)));
  const uint64_t counted = device.counters().peak_bytes;
  // Before the floor is measured, which also needs memory.
  const uint64_t resident = peak_resident_bytes();
  const size_t n = m.seconds.size(), part = std::max<size_t>(1, n / 8);
  const double mean_length = static_cast<double>(o.prompt) + static_cast<double>(n) / 2;
  const double bytes =
      static_cast<double>(traffic.weights) + mean_length * static_cast<double>(traffic.cache_entry);
  Machine machine;
  if (!o.no_floor) {
    BOWLINE_TRY_ASSIGN(machine, measure_machine(device, 256 << 20));
  }
  const double floor = o.no_floor ? 0 : bytes / machine.bandwidth;
  if (o.format == "json") {
    print_json({{"device", device.info().name},
                {"prompt_tokens", o.prompt},
                {"tokens", n},
                {"prompt_tokens_per_second", static_cast<double>(o.prompt) / m.prompt_seconds},
                {"tokens_per_second", 1 / m.mean(0, n)},
                {"ms_per_token", 1e3 * m.mean(0, n)},
                {"ms_median", 1e3 * m.median},
                {"ms_first", 1e3 * m.mean(0, part)},
                {"ms_last", 1e3 * m.mean(n - part, n)},
                {"weight_bytes", traffic.weights},
                {"cache_bytes_per_token", traffic.cache_entry},
                {"floor_ms", 1e3 * floor},
                {"percent_of_floor", 100 * floor / m.median},
                {"floor_bandwidth", machine.bandwidth},
                {"predicted_bytes", g.memory().predicted_bytes},
                {"counted_bytes", counted},
                {"peak_rss_bytes", resident}});
    return kOk;
  }
  print(
      "decode  {} tokens after a prompt of {} on {}: {:.1f} tokens/s, {:.3f} ms each (median "
      "{:.3f})\n",
      n, o.prompt, device.info().name, 1 / m.mean(0, n), 1e3 * m.mean(0, n), 1e3 * m.median);
  print("        first {}: {:.3f} ms each, last {}: {:.3f} ms each\n", part, 1e3 * m.mean(0, part),
        part, 1e3 * m.mean(n - part, n));
  print("prompt  {:.1f} tokens/s\n", static_cast<double>(o.prompt) / m.prompt_seconds);
  print("read    per token: {} of weights, and {} of the KV cache for each earlier token\n",
        bytes_text(traffic.weights), bytes_text(traffic.cache_entry));
  print("memory  {} predicted, {} allocated\n", bytes_text(g.memory().predicted_bytes),
        bytes_text(counted));
  if (!o.no_floor) {
    print("floor   {:.3f} ms, {:.1f} percent of the time\n        {}\n", 1e3 * floor,
          100 * floor / m.median, machine.source);
  }
  return kOk;
}

}  // namespace

void add_bench_decode(CLI::App& bench, Context& context) {
  const auto [verb, o] = add_verb<BenchDecodeOptions>(
      bench, context, bench_decode, "decode", "Times text generation, in tokens per second",
      "bowline bench decode lm.bowline --tokens 128 --device cpu -o json");
  verb->add_option("model", o->model, "Model file of a language model")->required();
  add_number(verb, "--prompt", o->prompt, "Tokens of the prompt", 1, 1 << 20);
  add_number(verb, "--tokens", o->tokens, "Generated tokens", 1, 1 << 20);
  add_changes(verb, o->changes);
  add_device(verb, o->device);
  verb->add_flag("--no-floor", o->no_floor, "Do not measure the best possible time");
  add_format(verb, o->format);
}

}  // namespace bowline::command
