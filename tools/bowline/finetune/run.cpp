#include "finetune/run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "common/print.h"
#include "common/timing.h"
#include "finetune/checks.h"
#include "finetune/run_state.h"
#include "verb.h"

namespace bowline::command {

Status Run::join() {
  BOWLINE_TRY_ASSIGN(processes_, Processes::join(o_.process_timeout));
  const uint32_t count = processes_.size();
  o_.is_first = processes_.is_first();
  if (o_.train.accumulation == 0) {
    o_.train.accumulation = count;
  }
  BOWLINE_REQUIRE(o_.train.accumulation >= count,
                  "--accumulate {} gives a step fewer micro-batches than there are processes ({}). "
                  "Start at most {} processes.",
                  o_.train.accumulation, count, o_.train.accumulation);
  BOWLINE_REQUIRE(count == 1 || o_.keep != "best" || !o_.checkpoint.empty(),
                  "--keep best needs --checkpoint with several processes, so that all of them find "
                  "the best weights.");
  if (count == 1) {
    return {};
  }
  o_.train.processes = processes_.group();
  o_.device.threads = o_.device.threads == 0 ? processes_.threads() : o_.device.threads;
  if (!o_.is_first) {
    silent_.reset(std::fopen("/dev/null", "w"));
    BOWLINE_REQUIRE_CODE(silent_ != nullptr, Code::io_error, "/dev/null cannot be opened.");
    out_ = silent_.get();
    line_ = ProgressLine(out_);
    o_.log.clear();
    o_.report.clear();
    o_.tensorboard.clear();
  }
  return {};
}

Result<int> Run::run() {
  watch_interrupts();
  Result<int> code = kOk;
  if (Status joined = join(); !joined.ok()) {
    code = joined.code() == Code::bad_argument ? Result<int>(fail_flags(joined))
                                               : Result<int>(std::move(joined));
  } else {
    code = run_joined();
  }
  if (processes_.group() == nullptr) {
    return code;
  }
  lost_ = lost_ || code.status().code() == Code::device_lost;
  const int number = code.ok() ? code.value() : end(code.status());
  trainer_.reset();
  o_.train.processes.reset();
  // All processes know of every error, unless one is lost.
  processes_.leave(number, !lost_);
  return number;
}

int Run::end(const Status& status) const {
  return o_.is_first || lost_ ? fail(status) : exit_code(status.code());
}

int Run::end(int code, const std::string& message) const {
  return o_.is_first || lost_ ? fail(code, message) : code;
}

Result<int> Run::run_joined() {
  if (Status options = check_options(o_); !options.ok()) {  // the same in all processes
    return o_.is_first ? fail_flags(options) : kUsage;
  }
  BOWLINE_TRY(processes_.agree(open_model()));
  if (Status flags = processes_.agree(check_flags()); !flags.ok()) {
    return o_.is_first ? fail_flags(flags) : kUsage;
  }
  BOWLINE_TRY(prepare());
  if (o_.dry_run) {
    describe();
    return kOk;
  }
  defer_interrupts();
  if (Status opened = processes_.agree(open_outputs()); !opened.ok()) {
    return o_.is_first ? fail_flags(opened) : exit_code(opened.code());
  }
  return finish(work());
}

Status Run::work() {
  for (const std::string& note : task_->info().notes) {
    print(out_, "{}\n", note);
  }
  print(out_, "{}\n", trained_text());
  print(out_, "{} steps of {} {} on {}; every loss is in {}\n", o_.steps,
        o_.batch * static_cast<int64_t>(o_.train.accumulation), task_->info().step,
        device_->info().name, task_->info().unit);
  if (!held_.begun()) {
    BOWLINE_TRY(evaluate());
  }
  print(out_, "held-out before: {}{}\n", loss_text(held_.first().value), more_text());
  flush(out_);
  BOWLINE_TRY(train());
  BOWLINE_REQUIRE_CODE(!stopping(), Code::cancelled, "Interrupted.");
  if (!o_.checkpoint.empty() && !store_.saved(samples_)) {
    BOWLINE_TRY(save());
  }
  if (trainer_->steps() != held_.last().step) {
    BOWLINE_TRY(evaluate());
  }
  return choose();
}

Status Run::train() {
  BOWLINE_TRY(snapshot());
  while (trainer_->steps() < o_.steps && !stopping()) {
    if (evaluation_due()) {
      BOWLINE_TRY(evaluate());
    }
    if (out_of_patience()) {
      line_.finish();
      print(out_,
            "stopped after step {}: the last {} evaluations were no better than that of step {}\n",
            trainer_->steps(), o_.patience, held_.best().step);
      return {};
    }
    BOWLINE_TRY(train_step());
  }
  line_.finish();
  return {};
}

// Runs micro-batches to the end of the step, or to a signal.
Status Run::train_step() {
  BOWLINE_TRY(weigh());
  for (bool finished = false; !finished && !stopping();) {
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report, micro_step());
    finished = report.has_value();
    if (report) {
      BOWLINE_TRY(processes_.agree(report_step(*report)));
    }
    BOWLINE_TRY(share_interrupts());
    const uint64_t batches = samples_ / static_cast<uint64_t>(o_.batch);
    const bool at_step = report && o_.save_every != 0 && report->step % o_.save_every == 0;
    const bool at_batch = o_.save_every_batches != 0 && batches % o_.save_every_batches == 0;
    if ((at_step || at_batch) && !stopping()) {
      BOWLINE_TRY(save());
      BOWLINE_TRY(snapshot());
    }
  }
  return {};
}

// Adds the loss weights of all micro-batches of the step, including those before a resume.
Status Run::weigh() {
  const auto size = static_cast<uint64_t>(o_.batch);
  const uint64_t first = samples_ - size * trainer_->accumulated();
  for (uint64_t i = 0; trainer_->needs_loss_weights() && i < o_.train.accumulation; ++i) {
    BOWLINE_TRY(trainer_->add_loss_weights(task_->batch(first + i * size)));
  }
  return {};
}

Status Run::share_interrupts() {
  if (processes_.size() > 1) {
    BOWLINE_TRY_ASSIGN(const std::vector<uint64_t> all, processes_.all(interrupted() ? 1 : 0));
    stopping_ = stopping_ || std::ranges::any_of(all, [](uint64_t one) { return one != 0; });
  }
  return {};
}

// Trains with the micro-batch of this process, and advances the data position by those of all
// processes. If the step restarts, the position returns to its first batch.
Result<std::optional<StepReport>> Run::micro_step() {
  const uint64_t step = trainer_->steps();
  const uint32_t before = trainer_->accumulated();
  const uint32_t count = std::min(processes_.size(), o_.train.accumulation - before);
  const auto size = static_cast<uint64_t>(o_.batch);
  std::span<const Tensor> batch;
  uint64_t tokens = 0;
  if (processes_.rank() < count) {
    batch = task_->batch(samples_ + size * processes_.rank());
    tokens = task_->tokens();
  }
  const Clock::time_point start = Clock::now();
  Result<std::optional<StepReport>> report = trainer_->micro_step(batch);
  train_seconds_ += seconds_since(start);
  if (report.ok() || trainer_->steps() != step) {
    samples_ += size * count;
    if (report.ok()) {
      BOWLINE_TRY_ASSIGN(const std::vector<uint64_t> all, processes_.all(tokens));
      tokens = std::accumulate(all.begin(), all.end(), uint64_t{0});
    }
    tokens_ += tokens;
  } else {
    samples_ -= size * (before - trainer_->accumulated());
  }
  return report;
}

// Writes a checkpoint, unless a parameter is not finite: no run could continue from the checkpoint,
// and it could replace a good one.
Status Run::save() {
  BOWLINE_TRY_ASSIGN(not_finite_, Store::find_not_finite(*model_));
  BOWLINE_TRY_ASSIGN(const auto bad, processes_.all(not_finite_.empty() ? 0 : 1));
  if (std::ranges::any_of(bad, [](uint64_t one) { return one != 0; })) {
    not_finite_ = not_finite_.empty() ? "of another process" : not_finite_;
    return {};
  }
  // A run that resumes from this checkpoint finds all of its steps in the log and the page.
  const auto write = [&] {
    Status synced = log_.sync();
    return synced.ok() && page_.on() ? page_.write(now()) : synced;
  };
  BOWLINE_TRY(processes_.agree(write()));
  return store_.save(*trainer_, progress());
}

// Takes the snapshot for a rollback.
Status Run::snapshot() {
  return o_.on_nonfinite == "rollback" && not_finite_.empty() ? trainer_->snapshot() : Status();
}

Status Run::go_back() {
  held_.go_back(trainer_->steps());
  page_.go_back(trainer_->steps());
  BOWLINE_TRY(events_.go_back(trainer_->steps()));
  return log_.go_back(trainer_->steps());
}

Status Run::report_step(const StepReport& report) {
  ++made_;
  loss_ = task_->shown(static_cast<double>(report.loss));
  const double tokens_per_second = rate();
  const double step_rate = static_cast<double>(tokens_ - std::exchange(shown_tokens_, tokens_)) /
                           (train_seconds_ - std::exchange(shown_seconds_, train_seconds_));
  show(report, loss_, tokens_per_second);
  if (report.rolled_back) {
    return go_back();
  }
  page_.add_step(report, loss_, step_rate);
  BOWLINE_TRY(page_.write_if_due(now()));
  BOWLINE_TRY(log_.write(report, loss_));
  BOWLINE_TRY(events_.scalar("loss/training", report.step, loss_));
  BOWLINE_TRY(events_.scalar("gradient_norm", report.step, static_cast<double>(report.grad_norm)));
  BOWLINE_TRY(
      events_.scalar("learning_rate", report.step, static_cast<double>(report.learning_rate)));
  return events_.scalar("tokens_per_second", report.step, tokens_per_second);
}

Status Run::forward(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  if (evaluation_) {
    return evaluation_->run(task_->info().evaluated, inputs, outputs);
  }
  BOWLINE_TRY_ASSIGN(*static_cast<float*>(outputs[0].data), trainer_->evaluate(inputs));
  return {};
}

Status Run::measure() {
  const auto here = [&]() -> Status {
    BOWLINE_TRY_ASSIGN(measure_, task_->evaluate([this](auto inputs, auto outputs) {
      return forward(inputs, outputs);
    }));
    return {};
  };
  Status measured = processes_.agree(processes_.is_first() ? here() : Status());
  if (measured.code() == Code::cancelled) {
    stopping_ = true;
  }
  BOWLINE_TRY(std::move(measured));
  // The other processes need the loss only: it decides when training stops, and what is written.
  return processes_.share_first(std::as_writable_bytes(std::span(&measure_.loss, 1)));
}

Status Run::evaluate() {
  BOWLINE_TRY(measure());
  const double loss = measure_.loss;
  const uint64_t step = trainer_->steps();
  page_.add_held_out(step, loss);
  page_.set_measure(measure_);
  const auto write = [&]() -> Status {
    BOWLINE_TRY(page_.write_if_due(now()));
    BOWLINE_TRY(events_.scalar("loss/held_out", step, loss));
    for (const auto& [name, value] : measure_.more) {
      BOWLINE_TRY(events_.scalar(name + "/held_out", step, value));
    }
    return {};
  };
  BOWLINE_TRY(processes_.agree(write()));
  if (!held_.begun()) {
    held_.begin(step, loss);
    return {};
  }
  line_.finish();
  print(out_, "held-out at step {}: {}{}\n", step, loss_text(loss), more_text());
  flush(out_);
  const bool best = held_.add(step, loss);
  return best && o_.eval_every != 0 ? store_.save_best(*trainer_, progress()) : Status();
}

// Chooses the weights and writes them, unless they are worse than before.
Status Run::choose() {
  const uint64_t last = trainer_->steps();
  const bool earlier =
      o_.keep == "best" && held_.best().step != last && held_.best().step != held_.first().step;
  chosen_ = earlier ? held_.best().value : held_.last().value;
  worse_ = !held_.acceptable(chosen_);
  if (worse_) {
    return {};
  }
  if (earlier) {
    if (!store_.saved(samples_)) {
      BOWLINE_TRY(save());
    }
    BOWLINE_TRY(trainer_->resume(store_.best(), {.extend = true}).status());
    print(out_, "kept: step {}, the best\n", held_.best().step);
  }
  return o_.out.empty() ? Status() : write_out();
}

Status Run::write_out() {
  BOWLINE_TRY(processes_.agree(store_.check_out()));
  const auto write = [&] {
    return o_.lora.rank != 0 ? save_adapter(*model_, kAdapter, o_.out) : model_->save(o_.out);
  };
  BOWLINE_TRY(o_.with_training_state ? trainer_->save(o_.out, progress())
                                     : processes_.agree(o_.is_first ? write() : Status()));
  written_ = true;
  return {};
}

Result<int> finetune(const FinetuneOptions& options) { return Run(options).run(); }

}  // namespace bowline::command
