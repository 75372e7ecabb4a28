#include "cuda_status.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// CUDA Runtime API, "Error handling": errors after which "the process must be terminated and
// relaunched".
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

Status status_of(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) {
    return {};
  }
  (void)cudaGetLastError();  // clears an error that is not sticky
  const Code code = is_sticky(error)                           ? Code::device_poisoned
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
