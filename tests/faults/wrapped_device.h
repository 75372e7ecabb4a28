// A device that forwards every call to another device. Mocks override single functions.
#pragma once

#include "device/backend.h"

namespace bowline::test {

class WrappedDevice : public device::Device {
 public:
  explicit WrappedDevice(std::unique_ptr<device::Device> inner) : inner_(std::move(inner)) {}

  const device::Capabilities& capabilities() const override { return inner_->capabilities(); }
  device::NodeAnswer query(const device::NodeQuery& node) const override {
    return inner_->query(node);
  }
  Result<device::MemoryInfo> memory_info() override { return inner_->memory_info(); }
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override {
    return inner_->allocate(bytes, kind);
  }
  void free(device::Buffer buffer) override { inner_->free(buffer); }
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    return inner_->copy_in(to, offset, from);
  }
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    return inner_->copy_out(to, from, offset);
  }
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    return inner_->copy(to, to_offset, from, from_offset, bytes);
  }
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    return inner_->fill(to, offset, bytes, value);
  }
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override {
    return inner_->record(program, buffers);
  }
  Status submit(std::span<device::Recording* const> recordings) override {
    return inner_->submit(recordings);
  }
  Status wait() override { return inner_->wait(); }
  void set_stop(const std::atomic<bool>* asked, size_t recordings) override {
    inner_->set_stop(asked, recordings);
  }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override {
    return inner_->timestamps(recording);
  }
  Result<device::LinkOffer> offer_link() override { return inner_->offer_link(); }
  Result<std::unique_ptr<device::Link>> link(const device::LinkOffer& first, uint32_t rank,
                                             uint32_t size, double timeout_seconds) override {
    return inner_->link(first, rank, size, timeout_seconds);
  }
  void trim() override { inner_->trim(); }

 protected:
  device::Device& inner() const { return *inner_; }

 private:
  std::unique_ptr<device::Device> inner_;
};

}  // namespace bowline::test
