// The context of a device: its own, or one of the program.
#pragma once

#include "cuda_status.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Makes a context of the program current in this thread, and restores the old one at the end.
//
// The CUDA runtime works in the current context, also if the program made it with the driver API
// (CUDA C++ Programming Guide, "Interoperability between Runtime and Driver APIs").
class Current {
 public:
  // `context`: a CUcontext. Null: nothing is done, because cudaSetDevice() chooses the device.
  explicit Current(void* context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  // Errors  bad_argument: the context is not valid. unsupported: there is no driver.
  const Status& status() const { return status_; }

 private:
  bool pushed_ = false;
  Status status_;
};

// Returns the number of the device of the current context.
Result<int> device_of_context();

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
