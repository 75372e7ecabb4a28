// Links of GPUs over NCCL.
#pragma once

#include "nccl_library.h"
#include "open_device.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Fails with the sentence of NCCL. `doing` completes "NCCL fails to ...".
Status status_of(NcclResult result, std::string_view doing);

class NcclLink final : public device::Link {
 public:
  NcclLink(CudaDevice& device, NcclCommunicator* communicator, double timeout_seconds)
      : device_(device), communicator_(communicator), timeout_seconds_(timeout_seconds) {}
  ~NcclLink() override;
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  Status exchange(std::span<const device::Transfer> sent,
                  std::span<const device::Transfer> received) override;

 private:
  Status enqueue(std::span<const device::Transfer> sent, std::span<const device::Transfer> received,
                 cudaStream_t stream) const;
  Status wait(cudaStream_t stream) const;

  CudaDevice& device_;
  NcclCommunicator* communicator_;  // null after a failure
  double timeout_seconds_;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
