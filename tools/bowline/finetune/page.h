// The page of --report: how a run goes, as pictures. It is written anew while the run goes, and
// loads itself anew as long.
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
    std::string run;       // of recipe.h
    uint64_t step = 0;     // what the page has of later steps is dropped
    bool resumed = false;  // a page of this run is gone on with
    bool force = false;    // any other one is replaced
  };
  // What does not change while the run goes.
  struct Description {
    std::string model;  // its path
    std::string unit;   // of the losses
    uint64_t steps = 0;
    Facts settings;
    Facts sources;        // files, hashes, the device
    std::string memory;   // HTML of memory_html()
    nlohmann::json data;  // of the settings and the memory
  };
  // What is said of the run now.
  struct Now {
    double tokens_per_second = 0;  // mean of this process
    uint64_t counted_bytes = 0;
    uint64_t predicted_bytes = 0;
    double seconds_left = 0;
  };

  // Errors  bad_argument: there is a file that is no page of this run. io_error: it cannot be
  //         written.
  static Result<RunPage> open(const Place& place);
  RunPage() = default;  // writes nothing

  bool on() const { return !path_.empty(); }
  void describe(Description description) { d_ = std::move(description); }
  // `loss` in the unit of the description; tokens per second are those of this step.
  void add_step(const StepReport& report, double loss, double tokens_per_second);
  void add_held_out(uint64_t step, double loss);
  // The last evaluation: what was taken for what.
  void set_measure(const Measure& measure) { measure_ = measure; }
  // Forgets the steps after `step`.
  void go_back(uint64_t step);

  // Writes the page if the last time was long enough ago: every 5 seconds, and never more than a
  // hundredth of the time.
  Status write_if_due(const Now& now);
  Status write(const Now& now);
  // The last time: "finished", "interrupted" or "failed", and a sentence.
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
