// The functions of bowline/external.h.
#include "device/external.h"

#include "api/internals.h"
#include "base/boundary.h"

namespace bowline {
namespace {

Result<std::shared_ptr<device::Block>> block_of(const Device& device,
                                                const device::MemoryImport& memory) {
  const std::shared_ptr<device::OpenDevice>& open = Internals::open(device);
  BOWLINE_REQUIRE(open != nullptr, "The device is empty: it was moved from.");
  return device::Block::import(open, memory);
}

Result<DeviceBuffer> import(const Device& device, const device::MemoryImport& memory) {
  return guarded([&]() -> Result<DeviceBuffer> {
    BOWLINE_TRY_ASSIGN(std::shared_ptr<device::Block> block, block_of(device, memory));
    return Internals::buffer(std::move(block));
  });
}

}  // namespace

Result<VulkanRequirements> vulkan_requirements(void (*get_instance_proc_addr)(), void* instance,
                                               void* physical_device) {
  return guarded([&] {
    ExternalVulkan external;
    external.get_instance_proc_addr = get_instance_proc_addr;
    external.instance = instance;
    external.physical_device = physical_device;
    return device::vulkan_requirements(external);
  });
}

Result<Device> adopt_vulkan(const ExternalVulkan& external, const DeviceOptions& options) {
  return guarded([&]() -> Result<Device> {
    BOWLINE_TRY_ASSIGN(auto open, device::adopt_device(external, options));
    return Internals::device(std::move(open));
  });
}

Result<Device> adopt_cuda(const ExternalCuda& external, const DeviceOptions& options) {
  return guarded([&]() -> Result<Device> {
    BOWLINE_TRY_ASSIGN(auto open, device::adopt_device(external, options));
    return Internals::device(std::move(open));
  });
}

Result<DeviceBuffer> adopt_vulkan_buffer(const Device& device, uint64_t buffer, uint64_t offset,
                                         uint64_t bytes) {
  device::MemoryImport memory;
  memory.kind = device::MemoryImport::Kind::vulkan_of_program;
  memory.handle = buffer;
  memory.offset = offset;
  memory.bytes = bytes;
  return import(device, memory);
}

Result<DeviceBuffer> adopt_cuda_memory(const Device& device, uint64_t address, uint64_t bytes) {
  device::MemoryImport memory;
  memory.kind = device::MemoryImport::Kind::cuda_of_program;
  memory.handle = address;
  memory.bytes = bytes;
  return import(device, memory);
}

Result<uint64_t> cuda_address(const DeviceBuffer& buffer) {
  return guarded(Internals::block(buffer), "buffer", [&](device::Block& block) -> Result<uint64_t> {
    BOWLINE_TRY_ASSIGN(const uint64_t start, block.device().cuda_address(block.buffer()));
    return start + block.offset();
  });
}

Result<HostBuffer> create_host_buffer(const Device& device, uint64_t bytes) {
  return guarded([&]() -> Result<HostBuffer> {
    std::byte* data = nullptr;
    device::MemoryImport memory;
    memory.kind = device::MemoryImport::Kind::host;
    memory.bytes = bytes;
    memory.address = &data;
    Result<std::shared_ptr<device::Block>> made = block_of(device, memory);
    BOWLINE_REQUIRE_CODE(made.status().code() != Code::unsupported, Code::unsupported,
                         "The program cannot address the memory of device {}. Use "
                         "DeviceBuffer::create().",
                         device.info().name);
    BOWLINE_TRY_ASSIGN(std::shared_ptr<device::Block> block, std::move(made));
    BOWLINE_TRY(block->fill(std::byte{0}));
    return HostBuffer{Internals::buffer(std::move(block)), data};
  });
}

Result<DeviceBuffer> create_exportable(const Device& device, uint64_t bytes, ExternalHandle kind) {
  device::MemoryImport memory;
  memory.type = kind;
  memory.bytes = bytes;
  return import(device, memory);
}

Result<ExportedMemory> export_memory(const DeviceBuffer& buffer) {
  return guarded(
      Internals::block(buffer), "buffer", [&](device::Block& block) -> Result<ExportedMemory> {
        BOWLINE_TRY_ASSIGN(const auto made, block.device().export_memory(block.buffer()));
        return ExportedMemory{made.first, made.second, block.bytes()};
      });
}

Result<DeviceBuffer> import_memory(const Device& device, const ExportedMemory& memory,
                                   ExternalHandle kind) {
  device::MemoryImport wanted;
  wanted.kind = device::MemoryImport::Kind::descriptor;
  wanted.type = kind;
  wanted.fd = memory.fd;
  wanted.allocation_bytes = memory.allocation_bytes;
  wanted.bytes = memory.bytes;
  return import(device, wanted);
}

struct DeviceSemaphore::State {
  std::shared_ptr<device::OpenDevice> device;
  uint64_t number = 0;

  static Result<std::shared_ptr<State>> import(const Device& of,
                                               const device::SemaphoreImport& semaphore) {
    const std::shared_ptr<device::OpenDevice>& open = Internals::open(of);
    BOWLINE_REQUIRE(open != nullptr, "The device is empty: it was moved from.");
    auto state = std::make_shared<State>();
    BOWLINE_TRY_ASSIGN(state->number, open->import_semaphore(semaphore));
    state->device = open;
    return state;
  }
  ~State() {
    if (device != nullptr) {
      device->free_semaphore(number);
    }
  }
};

DeviceSemaphore::DeviceSemaphore(std::shared_ptr<State> state) : state_(std::move(state)) {}
DeviceSemaphore::~DeviceSemaphore() = default;
DeviceSemaphore::DeviceSemaphore(const DeviceSemaphore&) = default;
DeviceSemaphore& DeviceSemaphore::operator=(const DeviceSemaphore&) = default;
DeviceSemaphore::DeviceSemaphore(DeviceSemaphore&&) noexcept = default;
DeviceSemaphore& DeviceSemaphore::operator=(DeviceSemaphore&&) noexcept = default;

Result<DeviceSemaphore> DeviceSemaphore::adopt_vulkan(const Device& device, uint64_t semaphore,
                                                      bool timeline) {
  return guarded([&]() -> Result<DeviceSemaphore> {
    const device::SemaphoreImport wanted{device::SemaphoreImport::Kind::of_program, semaphore, -1,
                                         timeline};
    BOWLINE_TRY_ASSIGN(auto state, State::import(device, wanted));
    return DeviceSemaphore(std::move(state));
  });
}

Result<DeviceSemaphore> DeviceSemaphore::create_exportable(const Device& device, bool timeline) {
  return guarded([&]() -> Result<DeviceSemaphore> {
    const device::SemaphoreImport wanted{device::SemaphoreImport::Kind::exportable, 0, -1,
                                         timeline};
    BOWLINE_TRY_ASSIGN(auto state, State::import(device, wanted));
    return DeviceSemaphore(std::move(state));
  });
}

Result<DeviceSemaphore> DeviceSemaphore::import_fd(const Device& device, int fd, bool timeline) {
  return guarded([&]() -> Result<DeviceSemaphore> {
    const device::SemaphoreImport wanted{device::SemaphoreImport::Kind::descriptor, 0, fd,
                                         timeline};
    BOWLINE_TRY_ASSIGN(auto state, State::import(device, wanted));
    return DeviceSemaphore(std::move(state));
  });
}

Result<int> DeviceSemaphore::export_fd() const {
  return guarded(state_, "semaphore",
                 [](State& s) { return s.device->export_semaphore(s.number); });
}
Status DeviceSemaphore::wait_for(uint64_t value) const {
  return guarded(state_, "semaphore",
                 [&](State& s) { return s.device->wait_semaphore(s.number, value); });
}
Status DeviceSemaphore::signal(uint64_t value) const {
  return guarded(state_, "semaphore",
                 [&](State& s) { return s.device->signal_semaphore(s.number, value); });
}

}  // namespace bowline
