// The loss log: one line per step, the same bytes whether the run was interrupted or not.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "bowline.h"

namespace bowline::command {

class LossLog {
 public:
  // Keeps the lines of steps up to `step` of an earlier run, and drops what follows.
  static Result<LossLog> open(const std::string& path, uint64_t step);
  LossLog() = default;  // writes nothing

  Status write(const StepReport& report);
  // Makes what was written durable, before a checkpoint says that it was.
  Status sync();

 private:
  Status failed() const;
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace bowline::command
