// The loss log: a header line that identifies the run, then one line per step. An interrupted and
// resumed run writes the same bytes as an uninterrupted run.
#pragma once

#include <string>
#include <string_view>

#include "bowline.h"
#include "common/files.h"

namespace bowline::command {

class LossLog {
 public:
  struct Place {
    std::string path;
    std::string run;       // run_id()
    std::string unit;      // of the losses
    uint64_t step = 0;     // lines of later steps are dropped
    bool resumed = false;  // continues an existing log of this run
    bool force = false;    // replaces a log of another run
  };

  // Errors  bad_argument: the file exists and is not a log that may be continued or replaced; it
  //         stays unchanged. bad_file: it is not a regular file. io_error: it cannot be written, or
  //         another process writes to it.
  static Result<LossLog> open(const Place& place);
  LossLog() = default;  // writes nothing

  // `loss` has the unit Place::unit.
  Status write(const StepReport& report, double loss);
  // Removes the lines after `step`, because these steps are repeated.
  Status go_back(uint64_t step);
  // Syncs the file to disk. Called before a checkpoint is written.
  Status sync();

 private:
  Status begin(const Place& place);
  Status cut_to(size_t length);
  Status append(std::string_view text);
  Status failed() const;
  std::string path_;
  Descriptor file_;
};

}  // namespace bowline::command
