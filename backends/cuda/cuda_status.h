// Converts errors of the CUDA runtime to a Status.
#pragma once

#include "base/status.h"
#include "bowline.h"
#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// `doing` completes "CUDA fails to ...", for example "copy 64 bytes to the device". The code is
// device_poisoned if the error leaves the context unusable: every later call in this process fails.
Status status_of(cudaError_t error, std::string_view doing);

// Returns a failed CUDA call as a Status.
#define BOWLINE_CUDA(call, ...)                                                                    \
  do {                                                                                             \
    if (const cudaError_t bowline_error = (call); bowline_error != cudaSuccess) {                  \
      return ::bowline::detail::BOWLINE_CUDA_NAMESPACE::status_of(bowline_error,                   \
                                                                  ::bowline::format(__VA_ARGS__)); \
    }                                                                                              \
  } while (false)

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
