// Wraps any device and fails its n-th fallible call.
#pragma once

#include "faults/wrapped_device.h"

namespace bowline::test {

// Shared by a test and its device. Calls are counted from arm(). Call number `fail_at` fails once.
struct Fault {
  int fail_at = 0;  // 0: no call fails
  int calls = 0;
  Code code = Code::out_of_memory;
  const char* only = nullptr;  // counts only the calls of this function

  void arm(int n, Code c = Code::out_of_memory) {
    fail_at = n;
    calls = 0;
    code = c;
  }
  void disarm() { fail_at = 0; }
  bool fired() const { return fail_at > 0 && calls >= fail_at; }

  Status step(const char* call) {
    if (only != nullptr && std::string_view(only) != call) {
      return {};
    }
    ++calls;
    BOWLINE_REQUIRE_CODE(calls != fail_at, code, "Call {} ({}) fails on purpose.", calls, call);
    return {};
  }
};

class FaultyLink : public device::Link {
 public:
  FaultyLink(std::unique_ptr<device::Link> inner, std::shared_ptr<Fault> fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  Status exchange(std::span<const device::Transfer> sent,
                  std::span<const device::Transfer> received) override {
    BOWLINE_TRY(fault_->step("exchange"));
    return inner_->exchange(sent, received);
  }

 private:
  std::unique_ptr<device::Link> inner_;
  std::shared_ptr<Fault> fault_;
};

class FaultyDevice : public WrappedDevice {
 public:
  FaultyDevice(std::unique_ptr<device::Device> inner, std::shared_ptr<Fault> fault)
      : WrappedDevice(std::move(inner)), fault_(std::move(fault)) {}

  Result<device::MemoryInfo> memory_info() override {
    BOWLINE_TRY(step("memory_info"));
    return WrappedDevice::memory_info();
  }
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override {
    BOWLINE_TRY(step("allocate"));
    return WrappedDevice::allocate(bytes, kind);
  }
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_TRY(step("copy_in"));
    return WrappedDevice::copy_in(to, offset, from);
  }
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    BOWLINE_TRY(step("copy_out"));
    return WrappedDevice::copy_out(to, from, offset);
  }
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    BOWLINE_TRY(step("copy"));
    return WrappedDevice::copy(to, to_offset, from, from_offset, bytes);
  }
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    BOWLINE_TRY(step("fill"));
    return WrappedDevice::fill(to, offset, bytes, value);
  }
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override {
    BOWLINE_TRY(step("record"));
    return WrappedDevice::record(program, buffers);
  }
  Status submit(std::span<device::Recording* const> recordings) override {
    BOWLINE_TRY(step("submit"));
    return WrappedDevice::submit(recordings);
  }
  Status wait() override {
    BOWLINE_TRY(step("wait"));
    return WrappedDevice::wait();
  }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override {
    BOWLINE_TRY(step("timestamps"));
    return WrappedDevice::timestamps(recording);
  }
  Result<device::LinkOffer> offer_link() override {
    BOWLINE_TRY(step("offer_link"));
    return WrappedDevice::offer_link();
  }
  Result<std::unique_ptr<device::Link>> link(const device::LinkOffer& first, uint32_t rank,
                                             uint32_t size, double timeout_seconds) override {
    BOWLINE_TRY(step("link"));
    BOWLINE_TRY_ASSIGN(std::unique_ptr<device::Link> made,
                       WrappedDevice::link(first, rank, size, timeout_seconds));
    return std::unique_ptr<device::Link>(std::make_unique<FaultyLink>(std::move(made), fault_));
  }

 protected:
  Status step(const char* call) { return fault_->step(call); }

 private:
  std::shared_ptr<Fault> fault_;
};

// A device whose submissions have a part per recording, so that a submission can fail between two
// parts or after the last.
class PiecewiseDevice : public FaultyDevice {
 public:
  using FaultyDevice::FaultyDevice;

  Status submit(std::span<device::Recording* const> recordings) override {
    for (device::Recording* const& recording : recordings) {
      BOWLINE_TRY(step("a piece of submit"));
      BOWLINE_TRY(inner().submit({&recording, 1}));
    }
    return step("the end of submit");
  }
};

}  // namespace bowline::test
