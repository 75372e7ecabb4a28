// An opened CUDA device with one in-order stream.
#pragma once

#include "bowline/external.h"
#include "context.h"
#include "recording.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Returns the address of bytes of a buffer on the device.
// Errors  bad_argument: the bytes are not inside the buffer.
Result<std::byte*> address_of(device::Buffer buffer, uint64_t offset, uint64_t bytes);

class CudaDevice : public device::Device {
 public:
  static Result<std::unique_ptr<device::Device>> open(int index, MatmulPrecision precision);
  // Opens the device of a context of the program.
  static Result<std::unique_ptr<device::Device>> adopt(const ExternalCuda& external,
                                                       MatmulPrecision precision, DeviceInfo* info);
  // Needs no driver. See Backend::open_to_plan.
  static std::unique_ptr<device::Device> open_to_plan(const Traits& traits,
                                                      MatmulPrecision precision);
  ~CudaDevice() override;

  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery& node) const override;
  Result<device::MemoryInfo> memory_info() override;
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override;
  void free(device::Buffer buffer) override;
  Result<device::Buffer> import_memory(const device::MemoryImport& memory) override;
  Result<uint64_t> cuda_address(device::Buffer buffer) override;
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override;
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override;
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override;
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override;
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override;
  Result<std::unique_ptr<device::Recording>> plan(const device::Program& program) override;
  Status submit(std::span<device::Recording* const> recordings) override;
  Status wait() override;
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override;
  Result<device::LinkOffer> offer_link() override;
  Result<std::unique_ptr<device::Link>> link(const device::LinkOffer& first, uint32_t rank,
                                             uint32_t size, double timeout_seconds) override;
  // For a link: waits for earlier work, and returns the stream.
  Result<cudaStream_t> begin_exchange(const Current& current);
  void* context() const { return context_; }

 private:
  explicit CudaDevice(int index, void* context = nullptr) : index_(index), context_(context) {}
  // Prepares an opened device.
  Status start(MatmulPrecision precision);
  // Starts every call: selects the device for this thread, and returns the sticky error if there is
  // one. `current` has the context of the program.
  Status begin(const Current& current);
  cudaError_t choose_device() const;
  // Takes the precision if the GPU has it.
  void set(MatmulPrecision precision);
  // Keeps an error that makes the context unusable.
  Status end(Status status);
  Status synchronize();
  // For the first recording.
  Status make_block_counters();

  int index_;
  void* context_;  // CUcontext of the program, or null
  bool owns_stream_ = true;
  device::Capabilities capabilities_ = {.alignment = kAlignment};
  cudaStream_t stream_ = nullptr;
  cudaStream_t recorder_ = nullptr;  // captures graphs; the program may use `stream_` meanwhile
  std::unique_ptr<Blas> blas_;
  Traits traits_;
  std::unique_ptr<Memory> block_counters_;
  bool pending_ = false;  // work was submitted since the last wait
  Status poisoned_;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
