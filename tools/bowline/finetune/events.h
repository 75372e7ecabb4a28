// Event files of TensorBoard: records of TFRecord with a protocol buffer "Event" each, written by
// hand.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::command {

class EventFile {
 public:
  EventFile() = default;  // writes nothing
  // Makes a new file in `folder`, which is made too. Points of steps after `step` in older files of
  // the folder are
  // hidden: the run goes on from there. Errors  io_error.
  static Result<EventFile> create(const std::string& folder, uint64_t step);
  // The same for the points of this file.
  Status go_back(uint64_t step);

  Status scalar(std::string_view tag, uint64_t step, double value);

 private:
  Status record(std::string_view event);
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace bowline::command
