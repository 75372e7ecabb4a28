// The members of bowline::DeviceBuffer.
#include "api/internals.h"
#include "base/boundary.h"
#include "device/device.h"

namespace bowline {

DeviceBuffer::DeviceBuffer(std::shared_ptr<device::Block> block) : block_(std::move(block)) {}
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(const DeviceBuffer&) = default;
DeviceBuffer& DeviceBuffer::operator=(const DeviceBuffer&) = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&&) noexcept = default;

Result<DeviceBuffer> DeviceBuffer::create(const Device& device, uint64_t bytes) {
  return guarded([&]() -> Result<DeviceBuffer> {
    const std::shared_ptr<device::OpenDevice>& open = Internals::open(device);
    BOWLINE_REQUIRE(open != nullptr, "The device is empty: it was moved from.");
    BOWLINE_TRY_ASSIGN(std::shared_ptr<device::Block> block, device::Block::allocate(open, bytes));
    BOWLINE_TRY(block->fill(std::byte{0}));
    return DeviceBuffer(std::move(block));
  });
}

uint64_t DeviceBuffer::bytes() const { return block_ == nullptr ? 0 : block_->bytes(); }

Status DeviceBuffer::write(uint64_t offset, std::span<const std::byte> from) const {
  return guarded(block_, "buffer", [&](const device::Block& block) -> Status {
    BOWLINE_REQUIRE(offset <= block.bytes() && from.size() <= block.bytes() - offset,
                    "{} bytes at offset {} do not fit into a buffer of {} bytes.", from.size(),
                    offset, block.bytes());
    return block.write(offset, from);
  });
}

Status DeviceBuffer::read(uint64_t offset, std::span<std::byte> to) const {
  return guarded(block_, "buffer", [&](const device::Block& block) -> Status {
    BOWLINE_REQUIRE(offset <= block.bytes() && to.size() <= block.bytes() - offset,
                    "{} bytes at offset {} do not lie in a buffer of {} bytes.", to.size(), offset,
                    block.bytes());
    return block.read(offset, to);
  });
}

}  // namespace bowline
