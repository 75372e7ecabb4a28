#include "finetune/run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/interrupt.h"
#include "common/print.h"
#include "common/report.h"
#include "common/text_model.h"
#include "core/status.h"
#include "finetune/checks.h"
#include "finetune/events.h"
#include "finetune/held_out.h"
#include "finetune/log.h"
#include "finetune/recipe.h"
#include "finetune/store.h"
#include "verb.h"

namespace bowline::command {
namespace {

using Clock = std::chrono::steady_clock;

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan"
         : loss < 1e4     ? fmt::format("{:.4f}", loss)
                          : fmt::format("{:.4g}", loss);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Run {
 public:
  explicit Run(const FinetuneOptions& options)
      : o_(options),
        json_(options.output == "json"),
        out_(json_ ? stderr : stdout),
        line_(out_),
        store_(options) {}

  // The exit code.
  int run() {
    watch_interrupts();
    if (const Status s = prepare(); !s.ok()) {
      return fail(s);
    }
    if (o_.dry_run) {
      describe();
      return kOk;
    }
    defer_interrupts();
    if (const Status s = open_outputs(); !s.ok()) {
      return fail(s);
    }
    return finish(work());
  }

 private:
  Status prepare();
  Status open_model();
  Status resume();
  Status resume_auto();
  Status resume_from(const std::string& path);
  Status open_outputs();

  Status work();
  Status train();
  Status train_step();
  Status evaluate();
  Status report_step(const StepReport& report);
  Status choose();
  Status write_out();
  bool evaluation_due() const {
    const uint64_t step = trainer_->steps();
    return o_.eval_every != 0 && step % o_.eval_every == 0 && step != held_.last_step();
  }
  bool out_of_patience() const {
    return o_.patience != 0 && held_.stale(trainer_->steps(), o_.eval_every) >= o_.patience;
  }

  int finish(Status status);
  std::string keep_work();
  std::string worse_text() const;
  Config state_config() const;
  Progress progress() const;
  void describe() const;
  void show(const StepReport& report, double loss, double rate);
  void print_result();
  void print_json_result() const;
  double rate() const;

  const FinetuneOptions& o_;
  bool json_;
  std::FILE* out_;
  ProgressLine line_;
  Store store_;
  TrainingData data_;
  Config config_;
  Config saved_config_;  // of the checkpoint that the run goes on from
  std::string run_id_;
  std::optional<Device> device_;
  std::optional<Model> model_;
  std::optional<Trainer> trainer_;
  std::optional<Windows> windows_;
  HeldOut held_;
  LossLog log_;
  EventFile events_;
  uint64_t samples_ = 0;     // windows shown since the run began
  uint64_t micro_step_ = 0;  // batches of the unfinished step
  uint64_t first_step_ = 0;
  uint64_t made_ = 0;  // steps of this process
  double chosen_ = 0;  // held-out loss of the weights that are written
  double loss_ = 0;
  double train_seconds_ = 0;
  bool worse_ = false;
  bool written_ = false;
};

// ---------------------------------------------------------------------------------------- prepare

Status Run::prepare() {
  BOWLINE_ASSIGN(data_, TrainingData::read(o_));
  windows_.emplace(data_.train().size(), o_.seq, o_.seed);
  config_ = run_config(o_, data_);
  held_ = HeldOut(evaluation_key(o_, data_));
  BOWLINE_TRY(open_model());
  if (!o_.dry_run) {
    BOWLINE_TRY(store_.open());
  }
  BOWLINE_TRY(resume());
  first_step_ = trainer_->steps();
  return {};
}

Status Run::open_model() {
  BOWLINE_ASSIGN(Device device, open_real_device(o_.device, o_.threads, o_.allow_test_device));
  device_.emplace(std::move(device));
  BOWLINE_ASSIGN(Model model, open_text_model(o_.model));
  model_.emplace(std::move(model));
  run_id_ = run_id(config_, *model_);
  BOWLINE_TRY(model_->to(*device_));
  BOWLINE_ASSIGN(Trainer trainer, Trainer::create(*model_, *device_, train_options(o_)));
  trainer_.emplace(std::move(trainer));
  return {};
}

Status Run::resume() {
  if (o_.resume == "auto") {
    BOWLINE_TRY(resume_auto());
  } else if (o_.resume != "none") {
    BOWLINE_TRY(resume_from(o_.resume));
  } else {
    const std::vector<CheckpointFile> files = list_checkpoints(o_.checkpoint);
    BOWLINE_REQUIRE(files.empty(),
                    "Folder \"{}\" holds a checkpoint of an earlier run (step {}). --resume auto "
                    "goes on with it.",
                    o_.checkpoint, files.empty() ? 0 : files.front().step);
  }
  return store_.adopt(store_.last(), config_);
}

Status Run::resume_auto() {
  Status failed;
  for (const CheckpointFile& file : list_checkpoints(o_.checkpoint)) {
    failed = resume_from(file.path);
    if (failed.ok()) {
      return {};
    }
    if (is_whole(file.path)) {
      return failed;  // not damaged, but of another run
    }
    print(stderr, "bowline: {}\n- It is passed over.\n", Lines{failed.message()});
  }
  return std::move(failed).at("None of the checkpoints can be used.");
}

Status Run::resume_from(const std::string& path) {
  BOWLINE_ASSIGN(Config saved, read_config(path));
  BOWLINE_TRY(check_same_run(path, saved, config_));
  const Result<Progress> resumed = trainer_->resume(path);
  if (!resumed.ok()) {
    return Status(resumed.status()).as(Code::bad_file);
  }
  const Progress& p = resumed.value();
  BOWLINE_TRY(check_steps(path, saved, p.step, o_));
  samples_ = p.data_cursor;
  micro_step_ = p.micro_step;
  store_.set_saved(samples_, path);
  print(out_, "resumed at step {} from {}\n", p.step, path);
  const std::string device = find_setting(saved, "device").value_or(device_->info().name);
  if (device != device_->info().name) {
    print(out_, "the run was on device {} and is on {} now: from here on the bits may differ\n",
          device, device_->info().name);
  }
  if (p.step == o_.steps) {
    print(out_, "the run is finished; a larger --steps with --extend goes on\n");
  }
  if (!held_.read_from(saved)) {
    print(out_, "held-out losses are of another text or other windows: they begin anew\n");
    held_ = HeldOut(evaluation_key(o_, data_));
  }
  saved_config_ = std::move(saved);
  return {};
}

Status Run::open_outputs() {
  BOWLINE_TRY(store_.probe(*model_, saved_config_));
  if (!o_.log.empty()) {
    BOWLINE_ASSIGN(log_,
                   LossLog::open({o_.log, run_id_, first_step_, o_.resume != "none", o_.force}));
  }
  if (!o_.tensorboard.empty()) {
    BOWLINE_ASSIGN(events_, EventFile::create(o_.tensorboard, first_step_));
  }
  return {};
}

// ------------------------------------------------------------------------------------------- work

Status Run::work() {
  print(out_, "{} steps of {} x {} bytes on {}; every loss is in bits per byte\n", o_.steps,
        o_.batch * static_cast<int64_t>(o_.accumulate), o_.seq, device_->info().name);
  if (!held_.begun()) {
    BOWLINE_TRY(evaluate());
  }
  print(out_, "held-out before: {}\n", loss_text(held_.before()));
  flush(out_);
  BOWLINE_TRY(train());
  BOWLINE_REQUIRE_CODE(!interrupted(), Code::cancelled, "Interrupted.");
  if (!o_.checkpoint.empty() && !store_.saved(samples_)) {
    BOWLINE_TRY(log_.sync());
    BOWLINE_TRY(store_.save(*trainer_, progress()));
  }
  if (trainer_->steps() != held_.last_step()) {
    BOWLINE_TRY(evaluate());
  }
  return choose();
}

Status Run::train() {
  while (trainer_->steps() < o_.steps && !interrupted()) {
    if (evaluation_due()) {
      BOWLINE_TRY(evaluate());
    }
    if (out_of_patience()) {
      line_.finish();
      print(out_,
            "stopped after step {}: the last {} evaluations were no better than that of step {}\n",
            trainer_->steps(), o_.patience, held_.best_step());
      return {};
    }
    BOWLINE_TRY(train_step());
  }
  line_.finish();
  return {};
}

// Up to the end of the step, or to a signal.
Status Run::train_step() {
  Batch batch(o_.batch, o_.seq);
  for (bool finished = false; !finished && !interrupted();) {
    for (int64_t row = 0; row < o_.batch; ++row) {
      batch.set_row(row, data_.train(), windows_->begin(samples_ + static_cast<uint64_t>(row)));
    }
    const Clock::time_point start = Clock::now();
    BOWLINE_ASSIGN(const std::optional<StepReport> report, trainer_->micro_step(batch.inputs()));
    train_seconds_ += seconds_since(start);
    samples_ += static_cast<uint64_t>(o_.batch);
    finished = report.has_value();
    micro_step_ = finished ? 0 : micro_step_ + 1;
    if (report) {
      BOWLINE_TRY(report_step(*report));
    }
    const uint64_t batches = samples_ / static_cast<uint64_t>(o_.batch);
    const bool at_step = report && o_.save_every != 0 && report->step % o_.save_every == 0;
    const bool at_batch = o_.save_every_batches != 0 && batches % o_.save_every_batches == 0;
    if ((at_step || at_batch) && !interrupted()) {
      BOWLINE_TRY(log_.sync());
      BOWLINE_TRY(store_.save(*trainer_, progress()));
    }
  }
  return {};
}

Status Run::report_step(const StepReport& report) {
  ++made_;
  loss_ = bits_of_nats(static_cast<double>(report.loss));
  const double tokens_per_second = rate();
  show(report, loss_, tokens_per_second);
  BOWLINE_TRY(log_.write(report, loss_));
  BOWLINE_TRY(events_.scalar("loss/training", report.step, loss_));
  BOWLINE_TRY(events_.scalar("gradient_norm", report.step, static_cast<double>(report.grad_norm)));
  BOWLINE_TRY(
      events_.scalar("learning_rate", report.step, static_cast<double>(report.learning_rate)));
  return events_.scalar("tokens_per_second", report.step, tokens_per_second);
}

Status Run::evaluate() {
  const BatchLoss loss = [this](std::span<const Tensor> batch) {
    return trainer_->evaluate(batch);
  };
  BOWLINE_ASSIGN(const double bits, bits_per_byte(loss, data_.held_out(), evaluation(o_)));
  const uint64_t step = trainer_->steps();
  BOWLINE_TRY(events_.scalar("loss/held_out", step, bits));
  if (!held_.begun()) {
    held_.begin(step, bits);
    return {};
  }
  line_.finish();
  print(out_, "held-out at step {}: {}\n", step, loss_text(bits));
  flush(out_);
  const bool best = held_.add(step, bits);
  return best && o_.eval_every != 0 ? store_.save_best(*trainer_, progress()) : Status();
}

// Which weights are written, and whether they may replace anything.
Status Run::choose() {
  const uint64_t last = trainer_->steps();
  const bool earlier =
      o_.keep == "best" && held_.best_step() != last && held_.best_step() != held_.first_step();
  chosen_ = earlier ? held_.best() : held_.last();
  worse_ = !held_.acceptable(chosen_);
  if (worse_) {
    return {};
  }
  if (earlier) {
    if (!store_.saved(samples_)) {
      BOWLINE_TRY(store_.save(*trainer_, progress()));
    }
    BOWLINE_TRY(trainer_->resume(store_.best()).status());
    print(out_, "kept: step {}, the best\n", held_.best_step());
  }
  return o_.out.empty() ? Status() : write_out();
}

Status Run::write_out() {
  BOWLINE_TRY(store_.check_out());
  BOWLINE_TRY(o_.with_training_state ? trainer_->save(o_.out, progress()) : model_->save(o_.out));
  written_ = true;
  return {};
}

// ----------------------------------------------------------------------------------------- finish

// Every way out comes through here.
int Run::finish(Status status) {
  line_.finish();
  if (status.ok() && !worse_) {
    print_result();
    store_.finish();
    return kOk;
  }
  const std::string kept = keep_work();
  if (interrupted()) {
    return fail(
        kInterrupted,
        fmt::format("Interrupted after step {}. {}\n- --checkpoint {} --resume auto goes on.",
                    trainer_->steps(), kept, store_.folder()));
  }
  if (!status.ok()) {
    return fail(std::move(status).at(kept));
  }
  print_result();
  return fail(kFailed, worse_text() + fmt::format("\n- {}", kept));
}

// The values, and where the best weights are.
std::string Run::worse_text() const {
  const bool any = held_.best_step() != held_.first_step();
  const std::string best = any ? fmt::format("\"{}\", of step {}, with {}", store_.best(),
                                             held_.best_step(), loss_text(held_.best()))
                               : fmt::format("the model before the first step, \"{}\"", o_.model);
  return fmt::format("{}: {} bits per byte, before {}. Nothing is written{}.\n- The best is {}.",
                     std::isfinite(chosen_)
                         ? "The model predicts the held-out text worse than before"
                         : "The loss of the held-out text is not finite",
                     loss_text(chosen_), loss_text(held_.before()),
                     o_.out.empty() ? "" : fmt::format(" to \"{}\"", o_.out), best);
}

// A checkpoint of all that was done, if there is none. Returns a sentence about it.
std::string Run::keep_work() {
  if (!store_.saved(samples_) && (samples_ > 0 || interrupted())) {
    const std::string before = store_.last();
    if (const Status s = store_.save(*trainer_, progress()); !s.ok()) {
      return fmt::format("No checkpoint can be written: {} The last one is {}.", s.message(),
                         before.empty() ? "none" : fmt::format("\"{}\"", before));
    }
  }
  return store_.last().empty()
             ? "No step was made."
             : fmt::format("Step {} is in \"{}\".", trainer_->steps(), store_.last());
}

Config Run::state_config() const {
  Config config = config_;
  config.emplace_back("device", device_->info().name);
  held_.append_to(config);
  store_.append_to(config);
  return config;
}

Progress Run::progress() const {
  Progress p;
  p.step = trainer_->steps();
  p.micro_step = micro_step_;
  p.epoch = samples_ / windows_->per_epoch();
  p.data_cursor = samples_;
  p.data_seed = o_.seed;
  p.config = state_config();
  return p;
}

double Run::rate() const {
  const double tokens = static_cast<double>(made_) * static_cast<double>(o_.accumulate) *
                        static_cast<double>(o_.batch * o_.seq);
  return train_seconds_ > 0 ? tokens / train_seconds_ : 0;
}

void Run::describe() const {
  const uint64_t per_epoch = windows_->per_epoch();
  const double shown = static_cast<double>(o_.steps) * static_cast<double>(o_.accumulate) *
                       static_cast<double>(o_.batch);
  const MemoryReport m = trainer_->memory();
  print(out_, "device         {} ({})\n", device_->info().name, device_->info().description);
  print(out_, "training text  {} bytes, {} windows of {} bytes\n", data_.train().size(), per_epoch,
        o_.seq);
  print(out_, "held out       {} bytes\n", data_.held_out().size());
  print(out_, "steps          {} from step {} on, {:.2f} epochs in all\n", o_.steps, first_step_,
        shown / static_cast<double>(per_epoch));
  print(out_,
        "memory         {} predicted: weights, gradients, moments {}, activations {}, inputs {}, "
        "backend {}\n",
        bytes_text(m.predicted_bytes), bytes_text(m.storage_bytes), bytes_text(m.arena_bytes),
        bytes_text(m.io_bytes), bytes_text(m.backend_bytes));
}

void Run::show(const StepReport& report, double loss, double rate) {
  const bool plain = report.step == o_.steps || report.skipped ||
                     report.step % std::max<uint64_t>(1, o_.steps / 20) == 0;
  const double per_step = train_seconds_ / static_cast<double>(made_);
  const std::string skipped =
      report.skipped ? fmt::format("  norm {:g}  (not finite: skipped)", report.grad_norm) : "";
  line_.show(
      fmt::format("step {}/{}  loss {}{}  {:.0f} tokens/s  {}  {} left", report.step, o_.steps,
                  loss_text(loss), skipped, rate, bytes_text(device_->counters().peak_bytes),
                  seconds_text(static_cast<double>(o_.steps - report.step) * per_step)),
      plain);
}

void Run::print_json_result() const {
  print_json({{"device", device_->info().name},
              {"steps", made_},
              {"loss", loss_},
              {"bits_per_byte_before", held_.before()},
              {"bits_per_byte_after", chosen_},
              {"bits_per_byte_best", held_.best()},
              {"best_step", held_.best_step()},
              {"written", written_ ? nlohmann::json(o_.out) : nlohmann::json()},
              {"checkpoint", store_.last()},
              {"tokens_per_second", rate()},
              {"predicted_bytes", trainer_->memory().predicted_bytes},
              {"counted_bytes", device_->counters().peak_bytes},
              {"peak_rss_bytes", peak_resident_bytes()}});
}

void Run::print_result() {
  if (json_) {
    print_json_result();
    return;
  }
  print("held-out: {} -> {} bits per byte\n", loss_text(held_.before()), loss_text(chosen_));
  print("speed: {:.0f} tokens/s on {}\n", rate(), device_->info().name);
  print("memory: {} predicted, {} counted\n", bytes_text(trainer_->memory().predicted_bytes),
        bytes_text(device_->counters().peak_bytes));
  if (written_) {
    print("written: {}\n", o_.out);
  }
}

}  // namespace

int finetune(const FinetuneOptions& options) {
  if (const Status s = check_options(options); !s.ok()) {
    return fail(kUsage, s.message());
  }
  return Run(options).run();
}

}  // namespace bowline::command
