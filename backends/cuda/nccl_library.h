// The functions of NCCL that links need (NVIDIA NCCL documentation, "NCCL API"). The library is
// opened at run time, so its types are declared here. No version 2 changed them.
#pragma once

#include <cstddef>
#include <string>

#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

struct NcclCommunicator;

struct NcclUniqueId {
  char internal[128];
};

enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclDataType : int { kNcclUint8 = 1 };

// The NCCL of this machine (opened_library.h). The environment variable BOWLINE_NCCL is its path,
// or `off`: gradients go through the host. The emulation looks for no other library.
class NcclLibrary {
 public:
  static const NcclLibrary& get();

  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*init_rank)(NcclCommunicator** out, int size, NcclUniqueId id, int rank) = nullptr;
  NcclResult (*abort)(NcclCommunicator* communicator) = nullptr;
  NcclResult (*get_async_error)(NcclCommunicator* communicator, NcclResult* error) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*send)(const void* from, size_t count, NcclDataType type, int peer,
                     NcclCommunicator* communicator, cudaStream_t stream) = nullptr;
  NcclResult (*receive)(void* to, size_t count, NcclDataType type, int peer,
                        NcclCommunicator* communicator, cudaStream_t stream) = nullptr;
  const char* (*get_error_string)(NcclResult error) = nullptr;
  std::string problem;  // why the library is not used; empty if it is used

 private:
  NcclLibrary();
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
