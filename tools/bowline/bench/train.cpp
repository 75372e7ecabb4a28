// `bowline bench train`: time and memory of a training step.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/random.h"
#include "base/status.h"
#include "bench/floor.h"
#include "bench/verbs.h"
#include "common/files.h"
#include "common/find.h"
#include "common/flags.h"
#include "common/report.h"
#include "common/strings.h"
#include "common/text.h"
#include "common/timing.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct BenchTrainOptions : ModelOptions {
  std::string tokens;
  std::string dump_losses;
  std::string save_model;
  std::string compute = "f32";
  std::string encoding;               // of the frozen weights; empty: as in the file
  AdapterOptions lora = {.rank = 0};  // rank 0: the weights are trained
  int64_t batch = 8;
  int64_t seq = 256;
  uint64_t steps = 0;
  bool no_floor = false;
};

constexpr uint64_t kWarmupSteps = 3;
constexpr uint64_t kLeastRuns = 7;
constexpr double kLeastSeconds = 1;
constexpr uint64_t kMadeBatches = 20;
// Small, so that measuring the floor does not set the peak of memory.
constexpr uint64_t kStreamBytes = 8 << 20;

constexpr const char* kAdapter = "bench";

Status add_adapter(const BenchTrainOptions& o, Model& model) {
  BOWLINE_REQUIRE(o.encoding.empty() || o.lora.rank != 0,
                  "--quantize freezes the weights, so only an adapter can be trained. Add "
                  "--lora-rank, such as --lora-rank 8.");
  if (o.lora.rank == 0) {
    return {};
  }
  BOWLINE_TRY(quantize_all(model, o.encoding));
  return add_adapter(model, kAdapter, o.lora).status();
}

// Batches of seq + 1 token ids per row.
Result<std::vector<int32_t>> read_tokens(const BenchTrainOptions& o) {
  const size_t per_batch = static_cast<size_t>(o.batch * (o.seq + 1));
  std::vector<int32_t> tokens;
  if (o.tokens.empty()) {
    tokens.resize(per_batch * kMadeBatches);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] =
          static_cast<int32_t>(philox({static_cast<uint32_t>(i), 0, 0, 0}, {1, 0})[0] & 0xFF);
    }
    return tokens;
  }
  size_t bytes = 0;
  BOWLINE_TRY(read_regular("Token file", o.tokens, kMostTextBytes, [&](std::string_view piece) {
    tokens.resize((bytes + piece.size() + 3) / 4);
    std::memcpy(reinterpret_cast<char*>(tokens.data()) + bytes, piece.data(), piece.size());
    bytes += piece.size();
    return Status();
  }));
  BOWLINE_REQUIRE_CODE(bytes > 0 && bytes % (per_batch * 4) == 0, Code::bad_file,
                       "Token file \"{}\" has {} bytes; a batch of {} rows of {} i32 has {}.",
                       o.tokens, bytes, o.batch, o.seq + 1, per_batch * 4);
  return tokens;
}

struct MeasuredSteps {
  std::vector<double> seconds;
  std::vector<float> losses;
  MemoryReport memory;
  uint64_t counted_bytes = 0;
  Work work;
};

// The same optimizer as in tools/compare_torch.
TrainOptions train_options(const BenchTrainOptions& o) {
  TrainOptions t;
  t.dims = {{"batch", o.batch}, {"seq", o.seq}};
  t.optimizer.settings = {{"weight_decay", 0.1f}, {"beta2", 0.95f}};
  t.schedule.learning_rate = 1e-3f;
  t.precision.compute_dtype = compute_of(o.compute);
  return t;
}

// Returns the inputs of a batch of tokens. A language model gets the labels of the tokens. A model
// that tags words gets the same, and a classifier a class per row. A model for embeddings gets the
// labels as second texts. Every row has the full length.
std::vector<Tensor> inputs_of(const EntryPointInfo& loss, std::span<const Tensor> tokens,
                              std::vector<int32_t>& lengths, std::vector<int32_t>& classes) {
  if (find_named(loss.inputs, "lengths") == nullptr) {
    return {tokens.begin(), tokens.end()};
  }
  const auto rows = static_cast<int64_t>(lengths.size());
  const Tensor of_rows = {"lengths", DType::i32, {rows}, lengths.data()};
  if (find_named(loss.inputs, "second_tokens") != nullptr) {
    return {tokens[0],
            of_rows,
            {"second_tokens", DType::i32, tokens[1].shape, tokens[1].data},
            {"second_lengths", DType::i32, {rows}, lengths.data()}};
  }
  const InputInfo* const labels = find_named(loss.inputs, "labels");
  if (labels != nullptr && labels->dims.size() == 2) {
    return {tokens[0], tokens[1], of_rows};
  }
  return {tokens[0], {"labels", DType::i32, {rows}, classes.data()}, of_rows};
}

Result<MeasuredSteps> measure(const BenchTrainOptions& o, Model& model, const Device& device) {
  BOWLINE_TRY_ASSIGN(const std::vector<int32_t> tokens, read_tokens(o));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, train_options(o)));
  const size_t row_length = static_cast<size_t>(o.seq) + 1;
  const size_t rows = tokens.size() / row_length;
  Batch batch(o.batch, o.seq);
  std::vector<int32_t> lengths(static_cast<size_t>(o.batch), static_cast<int32_t>(o.seq));
  std::vector<int32_t> classes(lengths.size());
  const std::vector<Tensor> inputs =
      inputs_of(*find_named(info.entry_points, "loss"), batch.inputs(), lengths, classes);
  MeasuredSteps m;
  double total = 0;
  for (uint64_t step = 0;; ++step) {
    const bool enough = m.seconds.size() >= kLeastRuns && total >= kLeastSeconds;
    if (o.steps != 0 ? step == o.steps : enough) {
      break;
    }
    for (int64_t row = 0; row < o.batch; ++row) {
      const size_t from = (step * static_cast<size_t>(o.batch) + static_cast<size_t>(row)) % rows;
      batch.set_row(row, tokens.data() + from * row_length);
    }
    const Clock::time_point start = Clock::now();
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report, trainer.micro_step(inputs));
    const double seconds = seconds_since(start);
    m.losses.push_back(report ? report->loss : 0);
    if (step >= kWarmupSteps || (o.steps != 0 && o.steps <= kWarmupSteps)) {
      m.seconds.push_back(seconds);
      total += seconds;
    }
  }
  m.memory = trainer.memory();
  m.counted_bytes = device.counters().peak_bytes;
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, trainer.describe());
  m.work = training_work(info, plan);
  return m;
}

Result<int> run(const BenchTrainOptions& o) {
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY_ASSIGN(Model opened, open_to_measure(o.model));
  BOWLINE_TRY(require_entry_point(opened, o.model, "loss"));
  std::optional<Model> model(std::move(opened));
  BOWLINE_TRY(add_adapter(o, *model));
  BOWLINE_TRY(model->to(device));
  BOWLINE_TRY_ASSIGN(const MeasuredSteps m, measure(o, *model, device));
  const Work& work = m.work;
  if (!o.dump_losses.empty()) {
    const auto line = [](float loss) { return fmt::format("{:.9g}\n", loss); };
    BOWLINE_TRY(write_text(o.dump_losses, joined(m.losses, line, "")));
  }
  if (!o.save_model.empty()) {
    BOWLINE_TRY(model->save(o.save_model));
  }
  model.reset();

  Machine machine;
  double floor_ms = 0;
  if (!o.no_floor) {
    Result<Machine> measured =
        measure_machine(device, kStreamBytes, compute_of(o.compute).value_or(DType::f32));
    BOWLINE_TRY(
        Status(measured.status()).at("While measuring the floor; --no-floor leaves it out."));
    machine = std::move(measured).value();
    floor_ms = 1e3 * (work.flops / machine.flops +
                      (work.activation_bytes + work.optimizer_bytes) / machine.bandwidth);
  }
  const double ms = 1e3 * median(m.seconds);
  const double tokens = 1e3 * static_cast<double>(o.batch * o.seq) / ms;
  const double gflops = work.flops / ms / 1e6;
  if (o.format == "json") {
    nlohmann::json j = {{"device", device.info().name},
                        {"batch", o.batch},
                        {"seq", o.seq},
                        {"compute", o.compute},
                        {"runs", m.seconds.size()},
                        {"time_ms", ms},
                        {"tokens_per_second", tokens},
                        {"gflops", gflops},
                        {"peak_rss_bytes", peak_resident_bytes()},
                        {"predicted_bytes", m.memory.predicted_bytes},
                        {"counted_bytes", m.counted_bytes},
                        {"losses", m.losses}};
    if (!o.no_floor) {
      j["floor_ms"] = floor_ms;
      j["percent_of_floor"] = 100 * floor_ms / ms;
      j["floor_flops"] = machine.flops;
      j["floor_bandwidth"] = machine.bandwidth;
    }
    print_json(j);
    return kOk;
  }
  print("training step, batch {} x {}, computed in {}, on {}\n", o.batch, o.seq, o.compute,
        device.info().name);
  print("time    {:.3f} ms, median of {} steps ({:.0f} tokens/s, {:.1f} GFLOP/s)\n", ms,
        m.seconds.size(), tokens, gflops);
  if (!o.no_floor) {
    print("floor   {:.3f} ms, {:.1f} percent of the time\n", floor_ms, 100 * floor_ms / ms);
    print("        {:.2f} GFLOP / F + ({:.1f} MB activations + {:.1f} MB optimizer) / BW\n",
          work.flops / 1e9, work.activation_bytes / 1e6, work.optimizer_bytes / 1e6);
    print("        {}\n", machine.source);
  }
  print("memory  {} predicted, {} allocated on the device, {} peak resident set\n",
        bytes_text(m.memory.predicted_bytes), bytes_text(m.counted_bytes),
        bytes_text(peak_resident_bytes()));
  return kOk;
}

}  // namespace

void add_bench_train(CLI::App& bench, Context& context) {
  const auto [verb, o] = add_verb<BenchTrainOptions>(
      bench, context, run, "train", "Times a training step (AdamW) of the entry point 'loss'",
      "bowline bench train base.bowline --batch 8 --seq 256 --device cpu -o json");
  verb->add_option("model", o->model, "Model file")->required();
  add_number(verb, "--batch", o->batch, "Rows per batch", 1, 1 << 20);
  add_number(verb, "--seq", o->seq, "Tokens per row", 1, 1 << 20);
  add_device(verb, o->device);
  add_compute(verb, o->compute);
  CLI::Option* rank = add_number(verb, "--lora-rank", o->lora.rank,
                                 "Train a LoRA adapter of this rank [no adapter]", 1, 1 << 12);
  add_text(verb, "--lora-target", o->lora.target, "Weight matrices that get an adapter", "PATTERN")
      ->needs(rank)
      ->capture_default_str();
  add_quantize_flag(verb, o->encoding);
  verb->add_option("--steps", o->steps, "Steps to run [until the median is steady]");
  add_text(verb, "--tokens", o->tokens, "Read i32 tokens: steps x batch x (seq + 1)", "FILE");
  add_text(verb, "--dump-losses", o->dump_losses, "Write the loss of each step", "FILE");
  add_text(verb, "--save-model", o->save_model, "Write the trained model", "FILE");
  verb->add_flag("--no-floor", o->no_floor, "Do not measure the best possible time");
  add_format(verb, o->format);
}

}  // namespace bowline::command
