#include "cuda_status.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

namespace {

// After some errors (an illegal address, an uncorrectable memory or NVLink error, ...), every later
// call fails. CUDA has no list of them, so a call without effect finds out.
bool is_context_lost() {
  size_t available = 0;
  size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&available, &total);
  (void)cudaGetLastError();
  switch (error) {
    case cudaSuccess:
    // There is no context yet, and none can be made now.
    case cudaErrorMemoryAllocation:
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    // The driver refuses the question during a capture.
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      return false;
    default:
      return true;
  }
}

}  // namespace

Status status_of(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) {
    return {};
  }
  (void)cudaGetLastError();  // clears an error that is not sticky
  const Code code = is_context_lost()                          ? Code::device_poisoned
                    : error == cudaErrorMemoryAllocation       ? Code::out_of_memory
                    : error == cudaErrorNoKernelImageForDevice ? Code::unsupported
                                                               : Code::internal;
  return Status(
      code, format("CUDA fails to {}: {} ({}).{}", doing, cudaGetErrorString(error),
                   cudaGetErrorName(error),
                   code == Code::device_poisoned
                       ? " The CUDA context of this process is unusable now; restart the process."
                       : ""));
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
