// The state of a `bowline finetune` run. prepare.cpp starts it, run.cpp trains, finish.cpp ends it.
#pragma once

#include <optional>
#include <string>

#include "common/interrupt.h"
#include "common/processes.h"
#include "common/report.h"
#include "common/trained_values.h"
#include "finetune/events.h"
#include "finetune/held_out.h"
#include "finetune/log.h"
#include "finetune/page.h"
#include "finetune/recipe.h"
#include "finetune/store.h"

namespace bowline::command {

// "4.1234", or "nan".
std::string loss_text(double loss);

class Run {
 public:
  explicit Run(const FinetuneOptions& options)
      : o_(options),
        json_(options.format == "json"),
        out_(json_ ? stderr : stdout),
        line_(out_),
        store_(o_) {}

  // Returns the exit code.
  Result<int> run();

 private:
  // Joins the other processes, and applies the flags that depend on their number.
  Status join();
  // Returns the exit code. The processes are joined.
  Result<int> run_joined();
  Status open_model();
  Status check_flags() const;
  Status prepare();
  Status open_data();
  Status open_device();
  Status place_model();
  Status make_trainer();
  Status warn_of_the_head(const AdapterReport& report) const;
  Status resume();
  Status resume_auto();
  Status resume_from(const std::string& path);
  Status open_outputs();

  Status work();
  Status train();
  Status train_step();
  Status evaluate();
  // Evaluates in process 0 and copies the result to the others.
  Status measure();
  // True if this process or another one was interrupted.
  bool stopping() const { return processes_.size() > 1 ? stopping_ : interrupted(); }
  // Tells all processes about an interruption of one.
  Status share_interrupts();
  Status forward(std::span<const Tensor> inputs, std::span<const Tensor> outputs);
  Status weigh();
  Result<std::optional<StepReport>> micro_step();
  Status report_step(const StepReport& report);
  Status go_back();
  Status save();
  Status snapshot();
  Status choose();
  Status write_out();
  bool evaluation_due() const {
    const uint64_t step = trainer_->steps();
    return o_.eval_every != 0 && step % o_.eval_every == 0 && step != held_.last().step;
  }
  bool out_of_patience() const {
    return o_.patience != 0 && held_.stale(trainer_->steps(), o_.eval_every) >= o_.patience;
  }

  // As fail(), but only one process prints the message.
  int end(const Status& status) const;
  int end(int code, const std::string& message) const;
  int finish(Status status);
  std::string keep_work();
  std::string worse_text() const;
  std::string result_text() const;
  std::string more_text() const;
  std::string trained_text() const;
  Config state_config() const;
  Progress progress() const;
  void describe() const;
  void show(const StepReport& report, double loss, double rate);
  void print_result();
  void print_json_result() const;
  double rate() const;
  Status describe_page();
  RunPage::Now now() const;
  MemoryReport memory() const;

  FinetuneOptions o_;
  Processes processes_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> silent_{nullptr, std::fclose};
  bool stopping_ = false;
  bool lost_ = false;  // another process does not answer
  bool json_;
  std::FILE* out_;
  ProgressLine line_;
  Store store_;
  std::unique_ptr<Task> task_;
  Config config_;
  Config saved_config_;  // of the checkpoint that the run resumes
  std::string run_id_;
  std::optional<Device> device_;
  std::optional<Model> model_;
  std::optional<Trainer> trainer_;
  TrainedValues trained_;
  std::optional<Session> evaluation_;  // set if the task does not evaluate with "loss"
  HeldOut held_;
  Measure measure_;  // of the last evaluation of this process
  LossLog log_;
  EventFile events_;
  RunPage page_;
  uint64_t samples_ = 0;  // samples since the start of the run
  uint64_t first_step_ = 0;
  uint64_t made_ = 0;  // steps that this process has made
  double chosen_ = 0;  // held-out loss of the weights that are written
  double loss_ = 0;
  uint64_t tokens_ = 0;
  double train_seconds_ = 0;
  double shown_seconds_ = 0;   // train_seconds_ at the last report
  uint64_t shown_tokens_ = 0;  // tokens_ at the last report
  std::string not_finite_;     // non-finite parameter that prevented the last checkpoint
  bool worse_ = false;
  bool written_ = false;
};

}  // namespace bowline::command
