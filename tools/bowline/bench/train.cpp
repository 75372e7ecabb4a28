#include "bench/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/random.h"
#include "base/status.h"
#include "bench/floor.h"
#include "common/files.h"
#include "common/flags.h"
#include "common/report.h"
#include "common/text.h"
#include "verb.h"

namespace bowline::command {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kWarmupSteps = 3;
constexpr uint64_t kLeastRuns = 7;
constexpr double kLeastSeconds = 1;
constexpr uint64_t kMadeBatches = 20;
constexpr uint64_t kStreamBytes =
    8 << 20;  // small, so that measuring the floor does not set the peak of memory

constexpr const char* kAdapter = "bench";

Status add_adapter(const BenchTrainOptions& o, Model& model) {
  BOWLINE_REQUIRE(o.encoding.empty() || o.lora_rank != 0,
                  "--quantize freezes the weights, so only an adapter can be trained. Add "
                  "--lora-rank, such as --lora-rank 8.");
  if (o.lora_rank == 0) {
    return {};
  }
  BOWLINE_TRY(quantize_all(model, o.encoding));
  AdapterOptions options;
  options.rank = o.lora_rank;
  options.target = o.lora_target;
  return add_adapter(model, kAdapter, options).status();
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

// The optimizer of tools/compare_torch.
TrainOptions train_options(const BenchTrainOptions& o) {
  TrainOptions t;
  t.dims = {{"batch", o.batch}, {"seq", o.seq}};
  t.optimizer.settings = {{"weight_decay", 0.1f}, {"beta2", 0.95f}};
  t.schedule.learning_rate = 1e-3f;
  t.precision.compute_dtype = compute_of(o.compute);
  return t;
}

// The inputs of a batch of tokens: beside them their labels, or, of a classifier, the lengths of
// whole rows and a class for each.
class Inputs {
 public:
  Inputs(const EntryPointInfo& loss, const BenchTrainOptions& o, std::span<const Tensor> of_tokens)
      : lengths_(static_cast<size_t>(o.batch), static_cast<int32_t>(o.seq)),
        classes_(static_cast<size_t>(o.batch)) {
    const bool by_row = std::ranges::any_of(
        loss.inputs, [](const InputInfo& input) { return input.name == "lengths"; });
    for (const Tensor& t : of_tokens) {
      const bool replaced = by_row && t.name == "labels";
      tensors_.push_back(replaced ? Tensor{"labels", DType::i32, {o.batch}, classes_.data()} : t);
    }
    if (by_row) {
      tensors_.push_back({"lengths", DType::i32, {o.batch}, lengths_.data()});
    }
  }
  std::span<const Tensor> tensors() const { return tensors_; }

 private:
  std::vector<int32_t> lengths_;
  std::vector<int32_t> classes_;
  std::vector<Tensor> tensors_;
};

Result<MeasuredSteps> measure(const BenchTrainOptions& o, Model& model, const Device& device) {
  BOWLINE_TRY_ASSIGN(const std::vector<int32_t> tokens, read_tokens(o));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, train_options(o)));
  const size_t row_length = static_cast<size_t>(o.seq) + 1;
  const size_t rows = tokens.size() / row_length;
  Batch batch(o.batch, o.seq);
  const Inputs inputs(*find_entry_point(info, "loss"), o, batch.inputs());
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
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report,
                       trainer.micro_step(inputs.tensors()));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    m.losses.push_back(report ? report->loss : 0);
    if (step >= kWarmupSteps || (o.steps != 0 && o.steps <= kWarmupSteps)) {
      m.seconds.push_back(seconds);
      total += seconds;
    }
  }
  m.memory = trainer.memory();
  m.counted_bytes = device.counters().peak_bytes;
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, trainer.describe());
  m.work = training_work(info, plan, true);
  std::ranges::sort(m.seconds);
  return m;
}

Status write_losses(const std::string& path, std::span<const float> losses) {
  std::string text;
  for (const float loss : losses) {
    text += fmt::format("{:.9g}\n", loss);
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  BOWLINE_REQUIRE_CODE(file.good(), Code::io_error, "\"{}\" cannot be written.", path);
  return {};
}

nlohmann::json json_of(const BenchTrainOptions& o, const Device& device, const MeasuredSteps& m,
                       double ms, double tokens, const Machine& machine, const Work& work,
                       double floor_ms) {
  nlohmann::json j = {{"device", device.info().name},
                      {"batch", o.batch},
                      {"seq", o.seq},
                      {"compute", o.compute},
                      {"runs", m.seconds.size()},
                      {"time_ms", ms},
                      {"tokens_per_second", tokens},
                      {"gflops", work.flops / ms / 1e6},
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
  return j;
}

Result<int> run(const BenchTrainOptions& o) {
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device, o.threads, o.memory_budget));
  BOWLINE_TRY_ASSIGN(Model opened, open_model(o.model));
  BOWLINE_TRY(require_entry_point(opened, o.model, "loss"));
  std::optional<Model> model(std::move(opened));
  BOWLINE_TRY(add_adapter(o, *model));
  BOWLINE_TRY(model->to(device));
  BOWLINE_TRY_ASSIGN(const MeasuredSteps m, measure(o, *model, device));
  const Work& work = m.work;
  if (!o.dump_losses.empty()) {
    BOWLINE_TRY(write_losses(o.dump_losses, m.losses));
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
  const double ms = 1e3 * m.seconds[m.seconds.size() / 2];
  const double tokens = 1e3 * static_cast<double>(o.batch * o.seq) / ms;
  if (o.format == "json") {
    print_json(json_of(o, device, m, ms, tokens, machine, work, floor_ms));
    return kOk;
  }
  print("training step, batch {} x {}, computed in {}, on {}\n", o.batch, o.seq, o.compute,
        device.info().name);
  print("time    {:.3f} ms, median of {} steps ({:.0f} tokens/s, {:.1f} GFLOP/s)\n", ms,
        m.seconds.size(), tokens, work.flops / ms / 1e6);
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

Result<int> bench_train(const BenchTrainOptions& options) { return run(options); }

}  // namespace bowline::command
