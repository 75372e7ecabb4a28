// bowline bench: times matrix products, runs, training steps and generation, beside the floor of
// the machine; work on large tables, and with ties; tokenizers.

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "bench/decode.h"
#include "bench/floor.h"
#include "bench/run.h"
#include "bench/table.h"
#include "bench/ties.h"
#include "bench/tokenize.h"
#include "bench/train.h"
#include "common/flags.h"
#include "common/inputs.h"
#include "common/report.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct MatmulOptions {
  int64_t m = 768;
  int64_t n = 768;
  int64_t k = 768;
  int runs = 21;
  int threads = 0;
  uint64_t memory_budget = 0;
  std::string layout = "nt";
  std::string dtype = "f32";
  std::string encoding;
  std::string device = "best";
  std::string format = "text";
};

Result<int> matmul(const MatmulOptions& o) {
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device, o.threads, o.memory_budget));
  const DType dtype = compute_of(o.dtype).value_or(DType::f32);
  double seconds = 0;
  uint64_t b_bytes = 0;
  {
    BOWLINE_TRY_ASSIGN(Product product,
                       Product::create(device, o.m, o.n, o.k, o.layout, dtype, o.encoding));
    b_bytes = product.b_bytes();
    BOWLINE_TRY_ASSIGN(seconds, median_seconds(o.runs, 3, [&] { return product.run(); }));
  }
  BOWLINE_TRY_ASSIGN(const Machine machine, measure_machine(device, 64 << 20, dtype));
  const double flops =
      2.0 * static_cast<double>(o.m) * static_cast<double>(o.n) * static_cast<double>(o.k);
  const double bytes =
      static_cast<double>(size_of(dtype)) * static_cast<double>(o.m * o.k + o.m * o.n) +
      static_cast<double>(b_bytes);
  // This product is itself a candidate for the fastest one.
  const double best = std::max(machine.flops, flops / seconds);
  const double floor = std::max(flops / best, bytes / machine.bandwidth);
  if (o.format == "json") {
    const nlohmann::json j = {{"device", device.info().name},
                              {"m", o.m},
                              {"n", o.n},
                              {"k", o.k},
                              {"layout", o.layout},
                              {"dtype", o.dtype},
                              {"encoding", o.encoding.empty() ? "plain" : o.encoding},
                              {"b_bytes", b_bytes},
                              {"runs", o.runs},
                              {"time_ms", 1e3 * seconds},
                              {"gflops", flops / seconds / 1e9},
                              {"floor_ms", 1e3 * floor},
                              {"percent_of_floor", 100 * floor / seconds},
                              {"floor_flops", best},
                              {"floor_bandwidth", machine.bandwidth},
                              {"peak_rss_bytes", peak_resident_bytes()}};
    print_json(j);
    return kOk;
  }
  print("matmul {} {} m {} n {} k {} on {}\n", o.layout, o.dtype, o.m, o.n, o.k,
        device.info().name);
  print("time    {:.3f} ms, median of {} ({:.1f} GFLOP/s)\n", 1e3 * seconds, o.runs,
        flops / seconds / 1e9);
  print("floor   {:.3f} ms, {:.1f} percent of the time\n", 1e3 * floor, 100 * floor / seconds);
  print("        {}\n", machine.source);
  return kOk;
}

void add_matmul(CLI::App* bench, Context& context) {
  CLI::App* verb =
      add_verb(*bench, "matmul", "Times one matrix product: [m, k] by [k, n]",
               "bowline bench matmul --m 768 --n 768 --k 768 --layout nt --device cpu");
  auto o = std::make_shared<MatmulOptions>();
  const CLI::Range size(1, 1 << 16);
  verb->add_option("--m", o->m, "Rows of the result")->check(size)->capture_default_str();
  verb->add_option("--n", o->n, "Columns of the result")->check(size)->capture_default_str();
  verb->add_option("--k", o->k, "Columns of a and rows of b")->check(size)->capture_default_str();
  verb->add_option("--layout", o->layout, "nt: b transposed; tn: a transposed")
      ->check(CLI::IsMember({"nn", "nt", "tn"}))
      ->capture_default_str();
  verb->add_option("--dtype", o->dtype, "Dtype of the matrices")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  verb->add_option("--encoding", o->encoding, "Encoding of b, such as int8 [none]")
      ->type_name("ENCODING");
  verb->add_option("--runs", o->runs, "Timed runs, after 3 runs to warm up")
      ->check(CLI::Range(7, 1000))
      ->capture_default_str();
  add_device(verb, o->device);
  add_threads(verb, o->threads);
  add_memory_budget(verb, o->memory_budget);
  add_format(verb, o->format);
  on_run(verb, context, [o] { return matmul(*o); });
}

void add_train(CLI::App* bench, Context& context) {
  CLI::App* verb =
      add_verb(*bench, "train", "Times a training step (AdamW) of the entry point 'loss'",
               "bowline bench train base.bowline --batch 8 --seq 256 --device cpu -o json");
  auto o = std::make_shared<BenchTrainOptions>();
  verb->add_option("model", o->model, "Model file")->required();
  verb->add_option("--batch", o->batch, "Rows per batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--seq", o->seq, "Tokens per row")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_device(verb, o->device);
  add_threads(verb, o->threads);
  add_memory_budget(verb, o->memory_budget);
  add_compute(verb, o->compute);
  CLI::Option* rank = verb->add_option("--lora-rank", o->lora_rank,
                                       "Train a LoRA adapter of this rank [no adapter]")
                          ->check(CLI::Range(1, 1 << 12));
  verb->add_option("--lora-target", o->lora_target, "Weight matrices that get an adapter")
      ->type_name("PATTERN")
      ->needs(rank)
      ->capture_default_str();
  add_quantize_flag(verb, o->encoding);
  verb->add_option("--steps", o->steps, "Steps to run [until the median is steady]");
  verb->add_option("--tokens", o->tokens, "File with i32 [steps, batch, seq + 1]")
      ->type_name("FILE");
  verb->add_option("--dump-losses", o->dump_losses, "Write the loss of each step")
      ->type_name("FILE");
  verb->add_option("--save-model", o->save_model, "Write the trained model")->type_name("FILE");
  verb->add_flag("--no-floor", o->no_floor, "Do not measure the lower limit of this machine");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return bench_train(*o); });
}

void add_bench_run(CLI::App* bench, Context& context) {
  CLI::App* verb = add_verb(*bench, "run", "Times an entry point",
                            "bowline bench run m.bowline --entry embed --batch 1 --seq 32");
  auto o = std::make_shared<BenchRunOptions>();
  verb->add_option("model", o->model, "Model file")->required();
  add_entry(verb, o->entry);
  verb->add_option("--input", o->inputs, std::string(kInputHelp) + " [random]")
      ->type_name("NAME=VALUE");
  add_dims(verb, o->dims);
  add_compute(verb, o->compute);
  add_changes(verb, o->changes);
  verb->add_option("--runs", o->runs, "Timed runs, after 5 runs to warm up")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  add_device(verb, o->device);
  add_threads(verb, o->threads);
  add_memory_budget(verb, o->memory_budget);
  add_format(verb, o->format);
  on_run(verb, context, [o] { return bench_run(*o); });
}

void add_decode(CLI::App* bench, Context& context) {
  CLI::App* verb = add_verb(*bench, "decode", "Times text generation, in tokens per second",
                            "bowline bench decode lm.bowline --tokens 128 --device cpu -o json");
  auto o = std::make_shared<BenchDecodeOptions>();
  verb->add_option("model", o->model, "Model file of a language model")->required();
  verb->add_option("--prompt", o->prompt, "Tokens of the prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--tokens", o->tokens, "Generated tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_changes(verb, o->changes);
  add_device(verb, o->device);
  add_threads(verb, o->threads);
  add_memory_budget(verb, o->memory_budget);
  verb->add_flag("--no-floor", o->no_floor, "Do not measure the lower limit of this machine");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return bench_decode(*o); });
}

void add_table(CLI::App* bench, Context& context) {
  CLI::App* verb =
      add_verb(*bench, "table", "Times opening, planning and saving a model with many parameters",
               "bowline bench table --parameters 100000");
  auto o = std::make_shared<BenchTableOptions>();
  verb->add_option("--parameters", o->parameters, "Number of parameters, each of 4 values")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  add_device(verb, o->device);
  add_format(verb, o->format);
  on_run(verb, context, [o] { return bench_table(*o); });
}

void add_ties(CLI::App* bench, Context& context) {
  CLI::App* verb = add_verb(*bench, "ties", "Compares the speed with and without tied weights",
                            "bowline bench ties --repeats 16");
  auto o = std::make_shared<BenchTiesOptions>();
  verb->add_option("--repeats", o->repeats, "Repeats of one block with tied weights")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  verb->add_option("--runs", o->runs, "Timed runs of each side; the median is shown")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  verb->add_option("--ties", o->ties, "Ties of the model that is planned")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  add_device(verb, o->device);
  add_format(verb, o->format);
  on_run(verb, context, [o] { return bench_ties(*o); });
}

void add_bench_tokenize(CLI::App* bench, Context& context) {
  CLI::App* verb = add_verb(*bench, "tokenize", "Times encoding and decoding on one core",
                            "bowline bench tokenize tokenizer.json --text book.txt");
  auto o = std::make_shared<BenchTokenizeOptions>();
  verb->add_option("tokenizer", o->tokenizer, "Model file, tokenizer.json or GGUF file")
      ->required();
  verb->add_option("--text", o->text, "File with the text; - is standard input")
      ->type_name("FILE")
      ->required();
  verb->add_option("--runs", o->runs, "Timed runs, after one run to warm up")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  add_format(verb, o->format);
  on_run(verb, context, [o] { return bench_tokenize(*o); });
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  CLI::App* bench =
      add_verb(app, "bench", "Measures the speed of operators, models, training and tokenizers",
               "bowline bench matmul --m 768 --n 768 --k 768 --device cpu");
  bench->require_subcommand(1);
  add_matmul(bench, context);
  add_bench_run(bench, context);
  add_train(bench, context);
  add_decode(bench, context);
  add_table(bench, context);
  add_ties(bench, context);
  add_bench_tokenize(bench, context);
}

}  // namespace bowline::command
