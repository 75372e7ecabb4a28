#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/html.h"
#include "common/print.h"
#include "finetune/run_state.h"
#include "verb.h"

namespace bowline::command {

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan"
         : loss < 1e4     ? fmt::format("{:.4f}", loss)
                          : fmt::format("{:.4g}", loss);
}

// Every run ends here.
int Run::finish(Status status) {
  lost_ = processes_.size() > 1 && status.code() == Code::device_lost;
  line_.finish();
  if (status.ok() && !worse_) {
    const Status page = page_.end("finished", result_text(), now());
    print_result();
    store_.finish();
    return page.ok() ? kOk : end(page);
  }
  const std::string kept = keep_work();
  // The reason for the end is printed last.
  const auto close_page = [&](const char* state, const std::string& message) {
    if (const Status page = page_.end(state, message, now()); !page.ok()) {
      end(page);
    }
    return message;
  };
  if (stopping()) {
    const std::string how =
        store_.last().empty()
            ? ""
            : fmt::format("\n- --checkpoint {} --resume auto continues the run.", store_.folder());
    return end(kInterrupted,
               close_page("interrupted", fmt::format("Interrupted after step {}. {}{}",
                                                     trainer_->steps(), kept, how)));
  }
  if (!status.ok()) {
    status = std::move(status).at(kept);
    close_page("failed", status.message());
    return end(status);
  }
  print_result();
  return end(kFailed, close_page("failed", worse_text() + fmt::format("\n- {}", kept)));
}

std::string Run::result_text() const {
  return fmt::format("The held-out loss was {} before and is {} now.{}",
                     loss_text(held_.first().value), loss_text(chosen_),
                     written_ ? fmt::format(" The weights are in \"{}\".", o_.out) : "");
}

// Returns the losses and the location of the best weights.
std::string Run::worse_text() const {
  const bool any = held_.best().step != held_.first().step;
  const std::string best = any ? fmt::format("\"{}\", of step {}, with {}", store_.best(),
                                             held_.best().step, loss_text(held_.best().value))
                               : fmt::format("the model before the first step, \"{}\"", o_.model);
  return fmt::format("{}: {} {}, before {}. Nothing is written{}.\n- The best is {}.",
                     std::isfinite(chosen_)
                         ? "The model predicts the held-out text worse than before"
                         : "The loss of the held-out text is not finite",
                     loss_text(chosen_), task_->info().unit, loss_text(held_.first().value),
                     o_.out.empty() ? "" : fmt::format(" to \"{}\"", o_.out), best);
}

// Writes a checkpoint if the latest work is not saved. Returns a sentence about it.
std::string Run::keep_work() {
  if (lost_) {
    return store_.last().empty() ? "There is no checkpoint."
                                 : fmt::format("The last checkpoint is \"{}\".", store_.last());
  }
  if (!store_.saved(samples_) && (samples_ > 0 || stopping())) {
    const std::string before =
        store_.last().empty() ? "none" : fmt::format("\"{}\"", store_.last());
    if (const Status s = save(); !s.ok()) {
      return fmt::format("No checkpoint can be written: {} The last one is {}.", s.message(),
                         before);
    }
    if (!not_finite_.empty()) {
      return fmt::format(
          "Step {} is not kept: parameter \"{}\" is no longer finite. The last checkpoint is {}.",
          trainer_->steps(), not_finite_, before);
    }
  }
  return store_.last().empty()
             ? "No step was made."
             : fmt::format("Step {} is in \"{}\".", trainer_->steps(), store_.last());
}

Config Run::state_config() const {
  Config config = config_;
  config.emplace_back(kDevice, device_->info().name);
  held_.append_to(config);
  store_.append_to(config);
  return config;
}

Progress Run::progress() const {
  Progress p;
  p.step = trainer_->steps();
  p.micro_step = trainer_->accumulated();
  p.epoch = samples_ / task_->info().samples_per_epoch;
  p.data_cursor = samples_;
  p.data_seed = o_.seed;
  p.config = state_config();
  return p;
}

double Run::rate() const {
  return train_seconds_ > 0 ? static_cast<double>(tokens_) / train_seconds_ : 0;
}

RunPage::Now Run::now() const {
  RunPage::Now now;
  now.tokens_per_second = rate();
  now.counted_bytes = device_->counters().peak_bytes;
  now.predicted_bytes = memory().predicted_bytes;
  now.seconds_left = made_ == 0 ? 0
                                : train_seconds_ / static_cast<double>(made_) *
                                      static_cast<double>(o_.steps - trainer_->steps());
  return now;
}

// Returns the other results of the last evaluation: ", accuracy 0.91".
std::string Run::more_text() const {
  std::string out;
  for (const auto& [name, value] : measure_.more) {
    out += fmt::format(", {} {:.4f}", name, value);
  }
  return out;
}

// "trains 12,288 of 134,527,296 values (the adapter)".
std::string Run::trained_text() const {
  return fmt::format("trains {} of {} values{}", grouped(trained_.values), grouped(trained_.all),
                     o_.lora.rank != 0 ? " (the adapter)" : "");
}

// The evaluation session shares the storages of the trainer, so only its other memory is added.
MemoryReport Run::memory() const {
  MemoryReport m = trainer_->memory();
  if (evaluation_) {
    const MemoryReport more = evaluation_->memory();
    m.arena_bytes += more.arena_bytes;
    m.io_bytes += more.io_bytes;
    m.backend_bytes += more.backend_bytes;
    m.predicted_bytes += more.arena_bytes + more.io_bytes + more.backend_bytes;
  }
  return m;
}

void Run::describe() const {
  if (!o_.is_first) {
    return;
  }
  if (json_) {
    const MemoryReport m = memory();
    print_json({{"device", device_->info().name},
                {"steps", o_.steps},
                {"trained_values", trained_.values},
                {"values", trained_.all},
                {"predicted_bytes", m.predicted_bytes},
                {"storage_bytes", m.storage_bytes},
                {"copy_bytes", m.copy_bytes},
                {"arena_bytes", m.arena_bytes},
                {"io_bytes", m.io_bytes},
                {"backend_bytes", m.backend_bytes + m.staging_bytes},
                {"peak_rss_bytes", peak_resident_bytes()}});
    return;
  }
  const double shown = static_cast<double>(o_.steps) * static_cast<double>(o_.train.accumulation) *
                       static_cast<double>(o_.batch);
  const MemoryReport m = memory();
  print(out_, "device         {} ({})\n", device_->info().name, device_->info().description);
  for (const auto& [name, text] : task_->info().data) {
    print(out_, "{:<14} {}\n", name, text);
  }
  for (const std::string& note : task_->info().notes) {
    print(out_, "{:<14} {}\n", "", note);
  }
  print(out_, "{:<14} {}\n", "values", trained_text());
  print(out_, "steps          {} in total, from step {} on; {:.2f} epochs\n", o_.steps, first_step_,
        shown / static_cast<double>(task_->info().samples_per_epoch));
  const std::string copies =
      m.copy_bytes == 0 ? "" : fmt::format("copies of weights {}, ", bytes_text(m.copy_bytes));
  print(out_,
        "memory         {} predicted: weights, gradients, moments {}, {}activations {}, inputs {}, "
        "backend {}\n",
        bytes_text(m.predicted_bytes), bytes_text(m.storage_bytes), copies,
        bytes_text(m.arena_bytes), bytes_text(m.io_bytes),
        bytes_text(m.backend_bytes + m.staging_bytes));
  if (const auto plan = trainer_->describe(); plan.ok() && plan.value().recomputed_nodes > 0) {
    print(out_,
          "               the activations of {} nodes are recomputed, to stay within the budget\n",
          plan.value().recomputed_nodes);
  }
}

void Run::show(const StepReport& report, double loss, double rate) {
  const bool bad = report.skipped || report.weights_non_finite;
  const bool plain =
      bad || report.step == o_.steps || report.step % std::max<uint64_t>(1, o_.steps / 20) == 0;
  const double per_step = train_seconds_ / static_cast<double>(made_);
  const std::string done = report.rolled_back ? fmt::format("back to step {}", trainer_->steps())
                           : report.skipped   ? "skipped"
                                              : "the weights";
  const std::string remark =
      bad ? fmt::format("  norm {:g}  (not finite{}: {})", report.grad_norm,
                        report.loss_scale == 1
                            ? ""
                            : fmt::format(" with a loss scale of {:g}", report.loss_scale),
                        done)
          : "";
  line_.show(
      fmt::format("step {}/{}  loss {}{}  {:.0f} tokens/s  {}  {} left", report.step, o_.steps,
                  loss_text(loss), remark, rate, bytes_text(device_->counters().peak_bytes),
                  seconds_text(static_cast<double>(o_.steps - report.step) * per_step)),
      plain);
}

void Run::print_json_result() const {
  const std::string unit = json_key(task_->info().unit);
  nlohmann::json result = {{"device", device_->info().name},
                           {"steps", made_},
                           {"loss", loss_},
                           {unit + "_before", held_.first().value},
                           {unit + "_after", chosen_},
                           {unit + "_best", held_.best().value},
                           {"best_step", held_.best().step},
                           {"written", written_ ? nlohmann::json(o_.out) : nlohmann::json()},
                           {"checkpoint", store_.last()},
                           {"tokens_per_second", rate()},
                           {"predicted_bytes", memory().predicted_bytes},
                           {"counted_bytes", device_->counters().peak_bytes},
                           {"peak_rss_bytes", peak_resident_bytes()}};
  for (const auto& [name, value] : measure_.more) {
    result["held_out_" + name] = value;  // from the last evaluation
  }
  print_json(result);
}

void Run::print_result() {
  if (!o_.is_first) {
    return;
  }
  if (json_) {
    print_json_result();
    return;
  }
  print("held-out: {} -> {} {}\n", loss_text(held_.first().value), loss_text(chosen_),
        task_->info().unit);
  print("speed: {:.0f} tokens/s on {}\n", rate(), device_->info().name);
  print("memory: {} predicted, {} allocated\n", bytes_text(memory().predicted_bytes),
        bytes_text(device_->counters().peak_bytes));
  if (written_) {
    print("written: {}\n", o_.out);
  }
}

}  // namespace bowline::command
