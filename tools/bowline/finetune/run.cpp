#include "finetune/run.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/checkpoints.h"
#include "common/interrupt.h"
#include "common/report.h"
#include "common/text.h"
#include "core/status.h"
#include "finetune/log.h"
#include "graph/model_state.h"
#include "model/checksum.h"
#include "verb.h"

namespace bowline::command {
namespace {

using Clock = std::chrono::steady_clock;
using Config = std::vector<std::pair<std::string, std::string>>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string hash_text(std::string_view text) {
  return fmt::format("{:016x}", model::checksum(std::as_bytes(std::span(text))));
}

// The model takes bytes as tokens.
Status check_model(const Model& model, const std::string& path) {
  const std::string tokenizer = model.metadata("tokenizer");
  BOWLINE_REQUIRE_CODE(tokenizer.empty() || tokenizer == "bytes", Code::bad_file,
                       "Model \"{}\" has tokenizer \"{}\"; finetune reads text as bytes.", path,
                       tokenizer);
  const graph::Graph* loss = model.state()->find_graph("loss");
  BOWLINE_REQUIRE_CODE(loss != nullptr, Code::bad_file, "Model \"{}\" has no entry point \"loss\".",
                       path);
  for (const char* name : {"tokens", "labels"}) {
    const bool found = std::ranges::any_of(loss->inputs, [&](graph::ValueId v) {
      return (*loss)[v].name == name && (*loss)[v].dtype == DType::i32 &&
             (*loss)[v].shape.rank() == 2;
    });
    BOWLINE_REQUIRE_CODE(found, Code::bad_file,
                         "Entry point \"loss\" of model \"{}\" has no input \"{}\" of dtype i32 "
                         "and shape [batch, seq].",
                         path, name);
  }
  return {};
}

class Run {
 public:
  explicit Run(const FinetuneOptions& options)
      : o_(options), json_(options.output == "json"), out_(json_ ? stderr : stdout), line_(out_) {}

  Result<int> run() {
    watch_interrupts();
    BOWLINE_TRY(read_data());
    BOWLINE_TRY(open_model());
    BOWLINE_TRY(start_or_resume());
    if (o_.dry_run) {
      describe();
      return static_cast<int>(kOk);
    }
    BOWLINE_ASSIGN(before_, evaluate("before"));
    BOWLINE_TRY(train());
    if (interrupted() && trainer_->steps() < o_.steps) {
      return stop();
    }
    if (!o_.out.empty()) {
      BOWLINE_TRY(model_->save(o_.out));
    }
    BOWLINE_ASSIGN(after_, evaluate("after"));
    print_result();
    return static_cast<int>(kOk);
  }

 private:
  Status read_data();
  Status open_model();
  Status start_or_resume();
  Status resume_from(const std::string& path);
  Status train();
  Status train_step();
  Status checkpoint();
  void print_result();
  Result<int> stop();
  Result<double> evaluate(std::string_view when);
  TrainOptions train_options() const;
  Config config() const;
  Progress progress() const;
  void describe();
  void show(const StepReport& report);
  std::string_view train_text() const { return std::string_view(data_).substr(0, train_bytes_); }
  std::string_view valid_text() const {
    return o_.valid.empty() ? std::string_view(data_).substr(train_bytes_)
                            : std::string_view(valid_);
  }

  const FinetuneOptions& o_;
  bool json_;
  std::FILE* out_;
  ProgressLine line_;
  std::string data_;
  std::string valid_;
  size_t train_bytes_ = 0;
  std::optional<Device> device_;
  std::optional<Model> model_;
  std::optional<Trainer> trainer_;
  std::optional<Windows> windows_;
  LossLog log_;
  uint64_t samples_ = 0;     // windows shown since the run began
  uint64_t micro_step_ = 0;  // batches of the unfinished step
  uint64_t first_step_ = 0;
  double before_ = 0;
  double after_ = 0;
  float loss_ = 0;
  double train_seconds_ = 0;
};

Status Run::read_data() {
  BOWLINE_ASSIGN(data_, read_text(o_.data));
  train_bytes_ = data_.size();
  if (o_.valid.empty()) {
    train_bytes_ = held_out_begin(data_);
  } else {
    BOWLINE_ASSIGN(valid_, read_text(o_.valid));
  }
  BOWLINE_REQUIRE_CODE(Windows::fits(train_bytes_, o_.seq), Code::bad_file,
                       "The training part of text \"{}\" has {} bytes; a window has {}.", o_.data,
                       train_bytes_, o_.seq + 1);
  BOWLINE_REQUIRE_CODE(valid_text().size() >= 2, Code::bad_file,
                       "The held-out part of text \"{}\" has {} bytes.",
                       o_.valid.empty() ? o_.data : o_.valid, valid_text().size());
  windows_.emplace(train_bytes_, o_.seq, o_.seed);
  return {};
}

TrainOptions Run::train_options() const {
  TrainOptions t;
  t.dims = {{"batch", o_.batch}, {"seq", o_.seq}};
  t.optimizer.kind = o_.optimizer == "sgd" ? Optimizer::Kind::sgd : Optimizer::Kind::adamw;
  t.optimizer.weight_decay = o_.weight_decay;
  t.optimizer.beta2 = o_.beta2;
  t.optimizer.momentum = o_.momentum;
  t.schedule.kind = o_.schedule == "constant" ? Schedule::Kind::constant
                    : o_.schedule == "linear" ? Schedule::Kind::linear
                                              : Schedule::Kind::cosine;
  t.schedule.learning_rate = o_.learning_rate;
  t.schedule.final_fraction = o_.final_fraction;
  t.schedule.warmup_steps = o_.warmup;
  t.schedule.total_steps = o_.steps;
  t.clip_norm = o_.clip;
  t.accumulation = o_.accumulate;
  t.seed = o_.seed;
  return t;
}

// What must be the same for a run to go on bit for bit.
Config Run::config() const {
  Config c = {{"batch", std::to_string(o_.batch)},
              {"seq", std::to_string(o_.seq)},
              {"accumulate", std::to_string(o_.accumulate)},
              {"seed", std::to_string(o_.seed)},
              {"learning-rate", fmt::format("{:.9g}", o_.learning_rate)},
              {"warmup", std::to_string(o_.warmup)},
              {"schedule", o_.schedule},
              {"optimizer", o_.optimizer},
              {"weight-decay", fmt::format("{:.9g}", o_.weight_decay)},
              {"beta2", fmt::format("{:.9g}", o_.beta2)},
              {"momentum", fmt::format("{:.9g}", o_.momentum)},
              {"clip", fmt::format("{:.9g}", o_.clip)},
              {"data", hash_text(train_text())}};
  if (o_.schedule != "constant") {
    c.emplace_back("steps", std::to_string(o_.steps));
    c.emplace_back("final-fraction", fmt::format("{:.9g}", o_.final_fraction));
  }
  return c;
}

Progress Run::progress() const {
  Progress p;
  p.step = trainer_->steps();
  p.micro_step = micro_step_;
  p.epoch = samples_ / windows_->per_epoch();
  p.data_cursor = samples_;
  p.data_seed = o_.seed;
  p.config = config();
  return p;
}

Status Run::open_model() {
  BOWLINE_ASSIGN(Device device, open_device(o_.device, o_.threads));
  device_.emplace(std::move(device));
  Result<Model> model = Model::open(o_.model);
  if (!model.ok()) {
    return std::move(model).status().as(Code::bad_file);
  }
  model_.emplace(std::move(model).value());
  BOWLINE_TRY(check_model(*model_, o_.model));
  BOWLINE_TRY(model_->to(*device_));
  BOWLINE_ASSIGN(Trainer trainer, Trainer::create(*model_, *device_, train_options()));
  trainer_.emplace(std::move(trainer));
  return {};
}

Status Run::resume_from(const std::string& path) {
  BOWLINE_ASSIGN(const Progress p, trainer_->resume(path));
  for (const auto& [key, value] : config()) {
    const auto saved =
        std::ranges::find(p.config, key, &std::pair<std::string, std::string>::first);
    BOWLINE_REQUIRE_CODE(saved != p.config.end() && saved->second == value, Code::bad_file,
                         "Checkpoint \"{}\" belongs to a run with another {}: {}, now {}.", path,
                         key, saved == p.config.end() ? "none" : saved->second, value);
  }
  samples_ = p.data_cursor;
  micro_step_ = p.micro_step;
  print(out_, "resumed at step {} from {}\n", p.step, path);
  return {};
}

Status Run::start_or_resume() {
  const std::vector<CheckpointFile> files = list_checkpoints(o_.checkpoint);
  if (o_.resume == "none") {
    BOWLINE_REQUIRE(o_.checkpoint.empty() || files.empty(),
                    "Folder \"{}\" holds a checkpoint of an earlier run (step {}). --resume auto "
                    "goes on with it.",
                    o_.checkpoint, files.empty() ? 0 : files.front().step);
  } else if (o_.resume != "auto") {
    Status s = resume_from(o_.resume);
    if (!s.ok()) {
      return s.code() == Code::io_error ? std::move(s).as(Code::bad_file) : std::move(s);
    }
  } else {
    Status failed;
    for (const CheckpointFile& file : files) {
      failed = resume_from(file.path);
      if (failed.ok() || (failed.code() != Code::bad_file && failed.code() != Code::io_error)) {
        break;
      }
      print(stderr, "bowline: {}\n- It is passed over.\n", Lines{failed.message()});
    }
    BOWLINE_TRY(std::move(failed).at("None of the checkpoints can be used."));
  }
  first_step_ = trainer_->steps();
  if (!o_.log.empty() && !o_.dry_run) {
    BOWLINE_ASSIGN(log_, LossLog::open(o_.log, first_step_));
  }
  return {};
}

void Run::describe() {
  const uint64_t per_epoch = windows_->per_epoch();
  const uint64_t shown = o_.steps * o_.accumulate * static_cast<uint64_t>(o_.batch);
  const MemoryReport m = trainer_->memory();
  print(out_, "device         {} ({})\n", device_->info().name, device_->info().description);
  print(out_, "training text  {} bytes, {} windows of {} bytes\n", train_bytes_, per_epoch, o_.seq);
  print(out_, "held out       {} bytes\n", valid_text().size());
  print(out_, "steps          {} from step {} on, {:.2f} epochs in all\n", o_.steps, first_step_,
        static_cast<double>(shown) / static_cast<double>(per_epoch));
  print(out_,
        "memory         {} predicted: weights, gradients, moments {}, activations {}, inputs "
        "{}, backend {}\n",
        bytes_text(m.predicted_bytes), bytes_text(m.storage_bytes), bytes_text(m.arena_bytes),
        bytes_text(m.io_bytes), bytes_text(m.backend_bytes));
}

Result<double> Run::evaluate(std::string_view when) {
  const int64_t stride = o_.eval_stride == 0 ? o_.seq : o_.eval_stride;
  BOWLINE_ASSIGN(const double bits,
                 bits_per_byte(*trainer_, valid_text(), o_.batch, o_.seq, stride, o_.eval_batches));
  line_.finish();
  print(out_, "held-out {}: {:.4f} bits per byte\n", when, bits);
  flush(out_);
  return bits;
}

void Run::show(const StepReport& report) {
  const uint64_t done = report.step - first_step_;
  const double rate = static_cast<double>(done) / train_seconds_;
  const double tokens =
      rate * static_cast<double>(o_.accumulate) * static_cast<double>(o_.batch * o_.seq);
  const bool plain =
      report.step == o_.steps || report.step % std::max<uint64_t>(1, o_.steps / 20) == 0;
  line_.show(fmt::format("step {}/{}  loss {:.4f}{}  {:.0f} tokens/s  {}  {} left", report.step,
                         o_.steps, report.loss, report.skipped ? " (not finite: skipped)" : "",
                         tokens, bytes_text(device_->counters().peak_bytes),
                         seconds_text(static_cast<double>(o_.steps - report.step) / rate)),
             plain);
}

Status Run::checkpoint() {
  BOWLINE_TRY(log_.sync());
  return write_checkpoint(*trainer_, o_.checkpoint, progress());
}

Status Run::train_step() {
  Batch batch(o_.batch, o_.seq);
  for (;;) {
    for (int64_t row = 0; row < o_.batch; ++row) {
      batch.set_row(row, train_text(), windows_->begin(samples_ + static_cast<uint64_t>(row)));
    }
    const Clock::time_point start = Clock::now();
    BOWLINE_ASSIGN(const std::optional<StepReport> report, trainer_->micro_step(batch.inputs()));
    train_seconds_ += seconds_since(start);
    samples_ += static_cast<uint64_t>(o_.batch);
    micro_step_ = report ? 0 : micro_step_ + 1;
    if (report) {
      BOWLINE_TRY(log_.write(*report));
      loss_ = report->loss;
      show(*report);
    }
    const uint64_t batches = samples_ / static_cast<uint64_t>(o_.batch);
    const bool at_step = report && o_.save_every != 0 && report->step % o_.save_every == 0;
    const bool at_batch = o_.save_every_batches != 0 && batches % o_.save_every_batches == 0;
    if (!o_.checkpoint.empty() && (at_step || at_batch) && !interrupted()) {
      BOWLINE_TRY(checkpoint());
    }
    if (report) {
      return {};
    }
  }
}

Status Run::train() {
  while (trainer_->steps() < o_.steps && !interrupted()) {
    BOWLINE_TRY(train_step());
    if (o_.eval_every != 0 && trainer_->steps() % o_.eval_every == 0 &&
        trainer_->steps() < o_.steps) {
      BOWLINE_TRY(evaluate(fmt::format("at step {}", trainer_->steps())).status());
    }
  }
  line_.finish();
  return o_.checkpoint.empty() ? Status() : checkpoint();
}

Result<int> Run::stop() {
  std::string folder = o_.checkpoint;
  if (folder.empty()) {
    folder = (o_.out.empty() ? o_.model : o_.out) + ".checkpoint";
    BOWLINE_TRY(write_checkpoint(*trainer_, folder, progress()));
  }
  print(stderr, "bowline: Interrupted after step {}. --checkpoint {} --resume auto goes on.\n",
        trainer_->steps(), folder);
  return static_cast<int>(kInterrupted);
}

void Run::print_result() {
  const MemoryReport memory = trainer_->memory();
  const uint64_t counted = device_->counters().peak_bytes;
  const uint64_t steps = trainer_->steps() - first_step_;
  const double tokens =
      static_cast<double>(steps * o_.accumulate) * static_cast<double>(o_.batch * o_.seq);
  const double rate = train_seconds_ > 0 ? tokens / train_seconds_ : 0;
  if (steps > 0 && !(after_ <= before_)) {
    print(stderr,
          "bowline: The model predicts the held-out text worse than before ({:.4f}, before "
          "{:.4f}).\n",
          after_, before_);
  }
  if (json_) {
    const nlohmann::json summary = {{"device", device_->info().name},
                                    {"steps", steps},
                                    {"loss", loss_},
                                    {"bits_per_byte_before", before_},
                                    {"bits_per_byte_after", after_},
                                    {"tokens_per_second", rate},
                                    {"predicted_bytes", memory.predicted_bytes},
                                    {"counted_bytes", counted},
                                    {"peak_rss_bytes", peak_resident_bytes()}};
    print_json(summary);
    return;
  }
  print("held-out: {:.4f} -> {:.4f} bits per byte\n", before_, after_);
  print("speed: {:.0f} tokens/s on {}\n", rate, device_->info().name);
  print("memory: {} predicted, {} counted\n", bytes_text(memory.predicted_bytes),
        bytes_text(counted));
  if (!o_.out.empty()) {
    print("written: {}\n", o_.out);
  }
}

// The folder of a file that is written at the end must be there now.
Status check_folder(const char* flag, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  BOWLINE_REQUIRE(path.empty() || folder.empty() || std::filesystem::is_directory(folder, error),
                  "The folder of {} \"{}\" is not there.", flag, path);
  return {};
}

Status check_options(const FinetuneOptions& o) {
  BOWLINE_REQUIRE(!o.out.empty() || o.dry_run || o.steps == 0 || !o.checkpoint.empty(),
                  "Nothing of the run would be kept: neither --out nor --checkpoint is given.");
  BOWLINE_REQUIRE(o.resume != "auto" || !o.checkpoint.empty(),
                  "--resume auto looks in --checkpoint, which is not given.");
  BOWLINE_REQUIRE((o.save_every == 0 && o.save_every_batches == 0) || !o.checkpoint.empty(),
                  "--save-every writes to --checkpoint, which is not given.");
  BOWLINE_REQUIRE(o.eval_stride >= 0 && o.eval_stride <= o.seq,
                  "--eval-stride {} lies outside 1..{} (--seq).", o.eval_stride, o.seq);
  BOWLINE_TRY(check_folder("--out", o.out));
  return check_folder("--log", o.log);
}

}  // namespace

int finetune(const FinetuneOptions& options) {
  if (const Status s = check_options(options); !s.ok()) {
    return fail(kUsage, s.message());
  }
  Result<int> code = Run(options).run();
  return code.ok() ? code.value() : fail(code.status());
}

}  // namespace bowline::command
