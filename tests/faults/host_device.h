// A device in host memory that checks its callers against the contract. It runs no Programs.
#pragma once

#include <cstring>
#include <map>

#include "device/device.h"

namespace bowline::test {

class HostDevice : public device::Device {
 public:
  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery&) const override {
    return {"This device runs no operators.", 0, 0};
  }
  Result<device::MemoryInfo> memory_info() override { return device::MemoryInfo{1 << 30, 1 << 30}; }
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind) override {
    blocks_[++last_].assign(bytes, std::byte{0xFF});
    return device::Buffer{last_};
  }
  void free(device::Buffer buffer) override { blocks_.erase(buffer.id); }
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_TRY(check(to, offset, from.size()));
    std::memcpy(blocks_[to.id].data() + offset, from.data(), from.size());
    return {};
  }
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    BOWLINE_TRY(check(from, offset, to.size()));
    std::memcpy(to.data(), blocks_[from.id].data() + offset, to.size());
    return {};
  }
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    BOWLINE_TRY(check(to, to_offset, bytes));
    BOWLINE_TRY(check(from, from_offset, bytes));
    std::memmove(blocks_[to.id].data() + to_offset, blocks_[from.id].data() + from_offset, bytes);
    return {};
  }
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    BOWLINE_TRY(check(to, offset, bytes));
    std::memset(blocks_[to.id].data() + offset, static_cast<int>(value), bytes);
    return {};
  }
  Result<std::unique_ptr<device::Recording>> record(const device::Program&,
                                                    std::span<const device::Buffer>) override {
    return Status(Code::unsupported, "This device records no Programs.");
  }
  Status submit(std::span<device::Recording* const>) override { return {}; }
  Status wait() override { return {}; }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording&) override {
    return std::vector<device::RecordTime>();
  }

 private:
  Status check(device::Buffer buffer, uint64_t offset, uint64_t bytes) const {
    const auto it = blocks_.find(buffer.id);
    BOWLINE_REQUIRE(it != blocks_.end(), "There is no buffer {}.", buffer.id);
    BOWLINE_REQUIRE(offset + bytes <= it->second.size(), "{} bytes at {} of a buffer of {}.", bytes,
                    offset, it->second.size());
    return {};
  }
  device::Capabilities capabilities_;
  std::map<uint64_t, std::vector<std::byte>> blocks_;
  uint64_t last_ = 1000;
};

inline std::shared_ptr<device::OpenDevice> open_for_test(std::string name,
                                                         std::unique_ptr<device::Device> device,
                                                         uint64_t memory_budget = 0) {
  DeviceInfo info;
  info.name = std::move(name);
  info.for_tests = true;
  return std::make_shared<device::OpenDevice>(std::move(info), std::move(device), memory_budget);
}

}  // namespace bowline::test
