// The page of --report: curves of a training run. During the run it is rewritten and reloads
// itself.
#pragma once

#include <string>

#include "bowline.h"
#include "common/page.h"
#include "common/series.h"
#include "common/timing.h"
#include "tasks/task.h"

namespace bowline::command {

class RunPage {
 public:
  struct Place {
    std::string path;
    std::string run;       // run_id()
    uint64_t step = 0;     // points after this step are dropped
    bool resumed = false;  // continues an existing page of this run
    bool force = false;    // replaces any other file
  };
  // The constant parts of the page.
  struct Description {
    std::string model;  // path
    std::string unit;   // of the losses
    uint64_t steps = 0;
    Facts settings;
    Facts sources;        // files, hashes, the device
    std::string memory;   // HTML of memory_html()
    nlohmann::json data;  // settings and memory, for programs
  };
  // The current state of the run.
  struct Now {
    double tokens_per_second = 0;  // mean of this process
    uint64_t counted_bytes = 0;
    uint64_t predicted_bytes = 0;
    double seconds_left = 0;
  };

  // Errors  bad_argument: the file exists and may not be continued or replaced. io_error: it cannot
  //         be written.
  static Result<RunPage> open(const Place& place);
  RunPage() = default;  // writes nothing

  bool on() const { return !path_.empty(); }
  void describe(Description description) { d_ = std::move(description); }
  // `loss` has the unit Description::unit. `tokens_per_second`: of this step alone.
  void add_step(const StepReport& report, double loss, double tokens_per_second);
  void add_held_out(uint64_t step, double loss);
  // Sets the result of the last evaluation.
  void set_measure(const Measure& measure) { measure_ = measure; }
  // Forgets the steps after `step`.
  void go_back(uint64_t step);

  // Writes the page at most every 5 seconds. If writing is slow, waits at least 100 times as long
  // as the last write took.
  Status write_if_due(const Now& now);
  Status write(const Now& now);
  // Writes the page for the last time. `state`: "finished", "interrupted" or "failed".
  Status end(const std::string& state, const std::string& sentence, const Now& now);

 private:
  Status read(const Place& place);
  nlohmann::json series() const;
  Facts headline(const Now& now) const;
  std::string html(const Now& now) const;
  uint64_t step() const;

  std::string path_;
  std::string run_;
  Description d_;
  Series loss_;
  Series held_out_;
  Series grad_norm_;
  Series learning_rate_;
  Series tokens_per_second_;
  Measure measure_;
  uint64_t skipped_ = 0;
  std::string state_ = "running";
  std::string sentence_;
  Clock::time_point due_;
};

}  // namespace bowline::command
