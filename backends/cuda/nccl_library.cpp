#include "nccl_library.h"

#include "base/format.h"
#include "opened_library.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

NcclLibrary::NcclLibrary() {
  static constexpr std::string_view kPackages[] = {"nccl"};
  OpenedLibrary library("libnccl.so.2", "BOWLINE_NCCL", kPackages);
  library.load(get_unique_id, "ncclGetUniqueId");
  library.load(init_rank, "ncclCommInitRank");
  library.load(abort, "ncclCommAbort");
  library.load(get_async_error, "ncclCommGetAsyncError");
  library.load(group_start, "ncclGroupStart");
  library.load(group_end, "ncclGroupEnd");
  library.load(send, "ncclSend");
  library.load(receive, "ncclRecv");
  library.load(get_error_string, "ncclGetErrorString");
  problem = library.problem();
}

const NcclLibrary& NcclLibrary::get() {
  static const NcclLibrary library;
  return library;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
