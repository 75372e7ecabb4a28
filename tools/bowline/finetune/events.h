// Writes event files of TensorBoard: TFRecord records with a protocol buffer "Event" each. The
// encoding is written by hand, without a protobuf library.
#pragma once

#include <string>
#include <string_view>

#include "bowline.h"
#include "common/files.h"

namespace bowline::command {

class EventFile {
 public:
  EventFile() = default;  // writes nothing
  // Creates a new file in `folder`, and the folder if needed. TensorBoard then hides the points
  // after `step` in older files of the folder. Errors  io_error.
  static Result<EventFile> create(const std::string& folder, uint64_t step);
  // Makes TensorBoard hide the points after `step`, also those of this file.
  Status go_back(uint64_t step);

  Status scalar(std::string_view tag, uint64_t step, double value);

 private:
  Status record(std::string_view event);
  std::string path_;
  Descriptor file_;
};

}  // namespace bowline::command
