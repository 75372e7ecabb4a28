// The loss log: a header line that tells the run, then one line per step; the same bytes whether
// the run was interrupted or not.
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
    std::string run;       // of recipe.h
    std::string unit;      // of the losses
    uint64_t step = 0;     // lines of later steps are dropped
    bool resumed = false;  // a log of this run is gone on with
    bool force = false;    // a log of another run is begun anew
  };

  // Errors  bad_argument: the file is there and is not a log of this run; nothing of it is changed.
  //         bad_file: it is no
  // regular file. io_error: it cannot be written, or another process writes it.
  static Result<LossLog> open(const Place& place);
  LossLog() = default;  // writes nothing

  // `loss` in the unit of the place.
  Status write(const StepReport& report, double loss);
  // Drops the lines of the steps after `step`, which are made again.
  Status go_back(uint64_t step);
  // Makes what was written durable, before a checkpoint says that it was.
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
