#include "nccl_link.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#ifdef BOWLINE_CUDA_EMULATED
#include <unistd.h>
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

using device::LinkOffer;
using device::Transfer;

namespace {

// The pieces of a group of calls. ncclGroupEnd() must follow ncclGroupStart(), also after an error.
Status status_of_first(NcclResult first, NcclResult second, std::string_view doing) {
  return status_of(first == kNcclSuccess ? second : first, doing);
}

}  // namespace

Status status_of(NcclResult result, std::string_view doing) {
  BOWLINE_REQUIRE_CODE(result == kNcclSuccess, Code::device_lost,
                       "NCCL fails to {}: {}. Start all processes again from the last checkpoint. "
                       "With the environment variable NCCL_DEBUG=WARN, NCCL says more; with "
                       "BOWLINE_NCCL=off, the processes do without NCCL.",
                       doing, std::string_view(NcclLibrary::get().get_error_string(result)));
  return {};
}

Result<LinkOffer> CudaDevice::offer_link() {
  const NcclLibrary& nccl = NcclLibrary::get();
  BOWLINE_REQUIRE_CODE(nccl.problem.empty(), Code::unsupported, "NCCL cannot be used: {}.",
                       nccl.problem);
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  LinkOffer out;
#ifdef BOWLINE_CUDA_EMULATED
  // Each emulated device has memory of its own.
  const std::pair<uint64_t, const void*> identity(getpid(), this);
  std::memcpy(out.device.data(), &identity, sizeof(identity));
#else
  cudaDeviceProp properties;
  BOWLINE_TRY(end(status_of(cudaGetDeviceProperties(&properties, index_), "identify the GPU")));
  static_assert(sizeof(properties.uuid) == sizeof(out.device));
  std::memcpy(out.device.data(), &properties.uuid, sizeof(out.device));
#endif
  NcclUniqueId id;
  static_assert(sizeof(id) == sizeof(out.key));
  BOWLINE_TRY(status_of(nccl.get_unique_id(&id), "name a communicator"));
  std::memcpy(out.key.data(), &id, sizeof(id));
  return out;
}

Result<std::unique_ptr<device::Link>> CudaDevice::link(const LinkOffer& first, uint32_t rank,
                                                       uint32_t size, double timeout_seconds) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  NcclUniqueId id;
  std::memcpy(&id, first.key.data(), sizeof(id));
  NcclCommunicator* communicator = nullptr;
  BOWLINE_TRY(status_of(NcclLibrary::get().init_rank(&communicator, static_cast<int>(size), id,
                                                     static_cast<int>(rank)),
                        format("connect {} GPUs", size)));
  return std::unique_ptr<device::Link>(
      std::make_unique<NcclLink>(*this, communicator, timeout_seconds));
}

Result<cudaStream_t> CudaDevice::begin_exchange(const Current& current) {
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY(pending_ ? synchronize() : Status());
  return stream_;
}

NcclLink::~NcclLink() {
  if (communicator_ != nullptr) {
    // ncclCommDestroy() may wait for the other processes. Every exchange is done, so there is
    // nothing to wait for.
    const Current current(device_.context());
    (void)device_.begin_exchange(current);
    (void)NcclLibrary::get().abort(communicator_);
  }
}

Status NcclLink::exchange(std::span<const Transfer> sent, std::span<const Transfer> received) {
  BOWLINE_REQUIRE_CODE(communicator_ != nullptr, Code::device_lost,
                       "The connection of the GPUs failed before. Start all processes again from "
                       "the last checkpoint.");
  const Current current(device_.context());
  BOWLINE_TRY_ASSIGN(const cudaStream_t stream, device_.begin_exchange(current));
  Status done = enqueue(sent, received, stream);
  if (done.ok()) {
    done = wait(stream);
  }
  if (!done.ok()) {
    // Ends what waits on the stream, too.
    (void)NcclLibrary::get().abort(std::exchange(communicator_, nullptr));
  }
  return done;
}

Status NcclLink::enqueue(std::span<const Transfer> sent, std::span<const Transfer> received,
                         cudaStream_t stream) const {
  const NcclLibrary& nccl = NcclLibrary::get();
  std::vector<std::byte*> places;
  for (const auto& list : {sent, received}) {
    for (const Transfer& t : list) {
      BOWLINE_TRY_ASSIGN(std::byte* const place, address_of(t.buffer, t.offset, t.bytes));
      places.push_back(place);
    }
  }
  auto place = places.begin();
  NcclResult result = nccl.group_start();
  for (const Transfer& t : sent) {
    result = result != kNcclSuccess ? result
                                    : nccl.send(*place, t.bytes, kNcclUint8,
                                                static_cast<int>(t.peer), communicator_, stream);
    ++place;
  }
  for (const Transfer& t : received) {
    result = result != kNcclSuccess ? result
                                    : nccl.receive(*place, t.bytes, kNcclUint8,
                                                   static_cast<int>(t.peer), communicator_, stream);
    ++place;
  }
  return status_of_first(result, nccl.group_end(), "exchange bytes between the GPUs");
}

Status NcclLink::wait(cudaStream_t stream) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (cudaError_t state = cudaStreamQuery(stream); state != cudaSuccess;
       state = cudaStreamQuery(stream)) {
    if (state != cudaErrorNotReady) {
      return status_of(state, "exchange bytes between the GPUs");
    }
    NcclResult error = kNcclSuccess;
    (void)NcclLibrary::get().get_async_error(communicator_, &error);
    if (error != kNcclInProgress) {
      BOWLINE_TRY(status_of(error, "exchange bytes between the GPUs"));
    }
    const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
    BOWLINE_REQUIRE_CODE(
        waited < timeout_seconds_, Code::device_lost,
        "The GPUs have not exchanged their bytes for {} seconds: a process hangs, "
        "or its machine cannot be reached. Start all processes again from the last "
        "checkpoint. If they only need more time, raise the timeout.",
        timeout_seconds_);
    // The other process may need this core.
    std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 20 : 500));
  }
  return {};
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
