#include "open_device.h"

#include <cstring>

#include "blas.h"
#include "device/external.h"
#include "planned_blas.h"
#include "variant.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

using device::Buffer;
using device::MemoryKind;
using device::NodeAnswer;
using device::NodeQuery;
using device::Program;
using device::Recording;

namespace {

constexpr std::string_view kDeviceName = "CUDA";

// The number of a Buffer is the address of its Memory.
Memory& memory_of(Buffer buffer) {
  return *reinterpret_cast<Memory*>(static_cast<uintptr_t>(buffer.id));
}

Status check(Buffer buffer, uint64_t offset, uint64_t bytes) {
  BOWLINE_REQUIRE(buffer.valid(), "The buffer is not valid.");
  const uint64_t size = memory_of(buffer).bytes;
  BOWLINE_REQUIRE(offset <= size && bytes <= size - offset,
                  "Bytes {}+{} lie outside a buffer of {}.", offset, bytes, size);
  return {};
}

}  // namespace

Result<std::byte*> address_of(Buffer buffer, uint64_t offset, uint64_t bytes) {
  BOWLINE_TRY(check(buffer, offset, bytes));
  return memory_of(buffer).device + offset;
}

Result<std::unique_ptr<device::Device>> CudaDevice::open(int index, MatmulPrecision precision) {
  std::unique_ptr<CudaDevice> self(new CudaDevice(index));
  BOWLINE_TRY(self->start(precision));
  return std::unique_ptr<device::Device>(std::move(self));
}

Result<std::unique_ptr<device::Device>> CudaDevice::adopt(const ExternalCuda& external,
                                                          MatmulPrecision precision,
                                                          DeviceInfo* info) {
  BOWLINE_REQUIRE(external.context != nullptr, "ExternalCuda::context is null.");
  const Current current(external.context);
  BOWLINE_TRY(Status(current.status()));
  BOWLINE_TRY_ASSIGN(const int index, device_of_context());
  std::unique_ptr<CudaDevice> self(new CudaDevice(index, external.context));
  if (external.stream != nullptr) {
    self->stream_ = static_cast<cudaStream_t>(external.stream);
    self->owns_stream_ = false;
  }
  BOWLINE_TRY(self->start(precision));
  cudaDeviceProp properties;
  BOWLINE_CUDA(cudaGetDeviceProperties(&properties, index), "ask for the name of the GPU");
  info->name = "cuda:external";
  info->description = std::string_view(properties.name);
  return std::unique_ptr<device::Device>(std::move(self));
}

Status CudaDevice::start(MatmulPrecision precision) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  if (stream_ == nullptr) {
    BOWLINE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  recorder_ = stream_;
  if (!owns_stream_) {
    BOWLINE_CUDA(cudaStreamCreateWithFlags(&recorder_, cudaStreamNonBlocking), "create a stream");
  }
  BOWLINE_TRY_ASSIGN(traits_, Traits::of(index_));
  const std::string problem = apply_variants(&traits_);
  BOWLINE_REQUIRE_CODE(problem.empty(), Code::unsupported, "{}", problem);
  set(precision);
  blas_ = traits_.has_library ? Blas::open() : nullptr;
  cudaDeviceProp properties;
  BOWLINE_CUDA(cudaGetDeviceProperties(&properties, index_), "ask for the name of the GPU");
  int driver = 0;
  BOWLINE_CUDA(cudaDriverGetVersion(&driver), "ask for the version of the driver");
  capabilities_.tuning = {format("{} {}, code for sm_{}, {} multiprocessors{}{}{}", kDeviceName,
                                 std::string_view(properties.name), traits_.code,
                                 traits_.processors, traits_.tf32 ? ", TF32" : "",
                                 traits_.variants.empty() ? "" : ", variants ", traits_.variants),
                          format("CUDA {}, {}", driver, Blas::description())};
  return {};
}

std::unique_ptr<device::Device> CudaDevice::open_to_plan(const Traits& traits,
                                                         MatmulPrecision precision) {
  std::unique_ptr<CudaDevice> self(new CudaDevice(0));
  self->traits_ = traits;
  self->set(precision);
  self->blas_ = traits.has_library ? std::make_unique<PlannedBlas>() : nullptr;
  return self;
}

CudaDevice::~CudaDevice() {
  if (stream_ == nullptr) {
    return;  // it only plans
  }
  const Current current(context_);
  (void)choose_device();
  (void)cudaStreamSynchronize(stream_);
  if (recorder_ != nullptr && recorder_ != stream_) {
    (void)cudaStreamDestroy(recorder_);
  }
  if (owns_stream_) {
    (void)cudaStreamDestroy(stream_);
  }
  blas_ = nullptr;
  block_counters_ = nullptr;
}

cudaError_t CudaDevice::choose_device() const {
  return context_ == nullptr ? cudaSetDevice(index_) : cudaSuccess;
}

void CudaDevice::set(MatmulPrecision precision) {
  traits_.tf32 = precision == MatmulPrecision::tf32 && traits_.code >= 80;
  capabilities_.matmul_precision = traits_.tf32 ? precision : MatmulPrecision::f32;
}

Status CudaDevice::begin(const Current& current) {
  BOWLINE_TRY(Status(poisoned_));
  BOWLINE_TRY(Status(current.status()));
  return end(status_of(choose_device(), "choose the device"));
}

Status CudaDevice::end(Status status) {
  if (status.code() == Code::device_poisoned && poisoned_.ok()) {
    poisoned_ = status;
  }
  return status;
}

Status CudaDevice::synchronize() {
  pending_ = false;
  return end(status_of(cudaStreamSynchronize(stream_), "wait for the device"));
}

NodeAnswer CudaDevice::query(const NodeQuery& node) const {
  const Current current(context_);
  if (stream_ != nullptr) {
    (void)choose_device();  // cuBLASLt may be asked for a plan
  }
  NodeAnswer answer;
  const Result<const Kernel*> found = device::kernel_of<Kernel>(kKernels, kDeviceName, node);
  if (!found.ok()) {
    answer.reason = found.status().message();
    return answer;
  }
  const Kernel* kernel = found.value();
  const NodeView view{node, blas_.get(), traits_};
  if (kernel->refusal != nullptr) {
    const char* reason = kernel->refusal(view);
    answer.reason = reason == nullptr ? "" : reason;
  }
  if (!answer.reason.empty()) {
    return answer;
  }
  answer.workspace_bytes = kernel->workspace ? kernel->workspace(view) : 0;
  answer.accumulates = kernel->accumulates ? kernel->accumulates(view) : 0;
  answer.candidates = kernel->candidates ? kernel->candidates(view) : 0;
  return answer;
}

Result<device::MemoryInfo> CudaDevice::memory_info() {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  size_t available = 0;
  size_t total = 0;
  BOWLINE_TRY(end(status_of(cudaMemGetInfo(&available, &total), "ask for the free memory")));
  return device::MemoryInfo{total, available};
}

Result<Buffer> CudaDevice::allocate(uint64_t bytes, MemoryKind kind) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  Result<std::unique_ptr<Memory>> memory = Memory::allocate(bytes, kind);
  if (!memory.ok()) {
    return end(std::move(memory).status());
  }
  return Buffer{reinterpret_cast<uintptr_t>(memory.value().release())};
}

Result<Buffer> CudaDevice::import_memory(const device::MemoryImport& memory) {
  if (memory.kind != device::MemoryImport::Kind::cuda_of_program) {
    return Device::import_memory(memory);
  }
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY_ASSIGN(std::unique_ptr<Memory> adopted,
                     Memory::adopt(memory.handle, memory.bytes, index_));
  return Buffer{reinterpret_cast<uintptr_t>(adopted.release())};
}

Result<uint64_t> CudaDevice::cuda_address(Buffer buffer) {
  BOWLINE_TRY(check(buffer, 0, 0));
  return reinterpret_cast<uintptr_t>(memory_of(buffer).device);
}

void CudaDevice::free(Buffer buffer) {
  if (buffer.valid()) {
    const Current current(context_);
    (void)choose_device();
    if (pending_) {
      (void)synchronize();
    }
    delete &memory_of(buffer);
  }
}

Status CudaDevice::copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY(check(to, offset, from.size()));
  Memory& memory = memory_of(to);
  if (memory.host != nullptr) {
    BOWLINE_TRY(pending_ ? synchronize() : Status());
    std::copy(from.begin(), from.end(), memory.host + offset);
    return {};
  }
  BOWLINE_TRY(end(status_of(cudaMemcpyAsync(memory.device + offset, from.data(), from.size(),
                                            cudaMemcpyHostToDevice, stream_),
                            format("copy {} bytes to the device", from.size()))));
  return synchronize();
}

Status CudaDevice::copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY(check(from, offset, to.size()));
  const Memory& memory = memory_of(from);
  if (memory.host != nullptr) {
    BOWLINE_TRY(pending_ ? synchronize() : Status());
    std::copy_n(memory.host + offset, to.size(), to.begin());
    return {};
  }
  BOWLINE_TRY(end(status_of(cudaMemcpyAsync(to.data(), memory.device + offset, to.size(),
                                            cudaMemcpyDeviceToHost, stream_),
                            format("copy {} bytes from the device", to.size()))));
  return synchronize();
}

Status CudaDevice::copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
                        uint64_t bytes) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY(check(to, to_offset, bytes));
  BOWLINE_TRY(check(from, from_offset, bytes));
  Memory& target = memory_of(to);
  const Memory& source = memory_of(from);
  BOWLINE_TRY(pending_ ? synchronize() : Status());
  if (target.host != nullptr && source.host != nullptr) {
    std::memmove(target.host + to_offset, source.host + from_offset, bytes);
    return {};
  }
  std::byte* const end_of_copy = target.host != nullptr ? target.host : target.device;
  const std::byte* const start = source.host != nullptr ? source.host : source.device;
  const cudaMemcpyKind kind = target.host != nullptr   ? cudaMemcpyDeviceToHost
                              : source.host != nullptr ? cudaMemcpyHostToDevice
                                                       : cudaMemcpyDeviceToDevice;
  BOWLINE_TRY(end(
      status_of(cudaMemcpyAsync(end_of_copy + to_offset, start + from_offset, bytes, kind, stream_),
                format("copy {} bytes on the device", bytes))));
  return synchronize();
}

Status CudaDevice::fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY(check(to, offset, bytes));
  Memory& memory = memory_of(to);
  BOWLINE_TRY(pending_ ? synchronize() : Status());
  if (memory.host != nullptr) {
    std::memset(memory.host + offset, static_cast<int>(value), bytes);
    return {};
  }
  BOWLINE_TRY(end(
      status_of(cudaMemsetAsync(memory.device + offset, static_cast<int>(value), bytes, stream_),
                format("fill {} bytes", bytes))));
  return synchronize();
}

Status CudaDevice::make_block_counters() {
  if (block_counters_ != nullptr) {
    return {};
  }
  constexpr uint64_t kBytes = kBlockCounters * sizeof(uint32_t);
  BOWLINE_TRY_ASSIGN(std::unique_ptr<Memory> counters,
                     Memory::allocate(kBytes, MemoryKind::device));
  BOWLINE_CUDA(cudaMemsetAsync(counters->device, 0, kBytes, stream_),
               "set the block counters to 0");
  block_counters_ = std::move(counters);
  return {};
}

Result<std::unique_ptr<Recording>> CudaDevice::record(const Program& program,
                                                      std::span<const Buffer> buffers) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_REQUIRE(buffers.size() == program.slots, "{} buffers are bound to {} slots.",
                  buffers.size(), program.slots);
  std::vector<const Memory*> memories;
  for (const Buffer b : buffers) {
    memories.push_back(b.valid() ? &memory_of(b) : nullptr);
  }
  for (const device::Record& r : program.records) {
    if (r.kind == device::Record::Kind::op) {
      BOWLINE_TRY(device::require_kernel<Kernel>(kKernels, kDeviceName, r));
    }
  }
  BOWLINE_TRY(pending_ ? synchronize() : Status());
  BOWLINE_TRY(end(make_block_counters()));
  Result<std::unique_ptr<CudaRecording>> recording =
      CudaRecording::make(program, memories, recorder_, blas_.get(), traits_,
                          reinterpret_cast<uint32_t*>(block_counters_->device));
  if (!recording.ok()) {
    return end(std::move(recording).status());
  }
  return std::unique_ptr<Recording>(std::move(recording).value());
}

Result<std::unique_ptr<Recording>> CudaDevice::plan(const Program& program) {
  BOWLINE_TRY_ASSIGN(auto recording, CudaRecording::plan(program, blas_.get(), traits_));
  return std::unique_ptr<Recording>(std::move(recording));
}

Status CudaDevice::submit(std::span<Recording* const> recordings) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  pending_ = true;
  for (Recording* r : recordings) {
    BOWLINE_TRY(end(static_cast<CudaRecording*>(r)->submit(stream_)));
  }
  return {};
}

Status CudaDevice::wait() {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  return synchronize();
}

Result<std::vector<device::RecordTime>> CudaDevice::timestamps(Recording& recording) {
  const Current current(context_);
  BOWLINE_TRY(begin(current));
  BOWLINE_TRY(synchronize());  // the recording may be measured on another stream
  Result<std::vector<device::RecordTime>> times =
      static_cast<CudaRecording&>(recording).timestamps();
  if (!times.ok()) {
    return end(std::move(times).status());
  }
  return times;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
