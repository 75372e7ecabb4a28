// The defaults of the contract for devices that share nothing.
#include "device/backend.h"

namespace bowline::detail::device {
namespace {

Status unshared(std::string_view what) {
  return Status(Code::unsupported,
                format("This device does not share {} with other users. Vulkan devices do.", what));
}

}  // namespace

Result<Buffer> Device::import_memory(const MemoryImport&) { return unshared("memory"); }
Result<std::pair<int, uint64_t>> Device::export_memory(Buffer) { return unshared("memory"); }
Result<uint64_t> Device::import_semaphore(const SemaphoreImport&) { return unshared("semaphores"); }
Result<int> Device::export_semaphore(uint64_t) { return unshared("semaphores"); }
Status Device::wait_semaphore(uint64_t, uint64_t) { return unshared("semaphores"); }
Status Device::signal_semaphore(uint64_t, uint64_t) { return unshared("semaphores"); }

}  // namespace bowline::detail::device
