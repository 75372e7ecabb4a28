// OpenDevice: one call at a time, and no allocation that the device cannot hold.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "faults/host_device.h"
#include "ties/seed_models.h"

namespace bowline::test {
namespace {

using device::Buffer;
using device::MemoryKind;

// Its query keeps what it found, as one that asks a library for plans does.
class RememberingDevice : public HostDevice {
 public:
  device::NodeAnswer query(const device::NodeQuery& node) const override {
    overlapped = overlapped || inside_.exchange(true);
    ++answers_[node.inputs.size()];
    for (int i = 0; i < 2; ++i) {
      std::this_thread::yield();
    }
    inside_ = false;
    return {};
  }
  int answers() const { return answers_[1]; }
  mutable std::atomic<bool> overlapped = false;

 private:
  mutable std::atomic<bool> inside_ = false;
  mutable std::map<size_t, int> answers_;
};

TEST(OpenDevice, AsksOneQueryAtATime) {
  constexpr int kThreads = 4;
  constexpr int kQueries = 25;
  auto own = std::make_unique<RememberingDevice>();
  const RememberingDevice& remembering = *own;
  const auto device = open_for_test("remembering", std::move(own));
  const Attributes attributes = Attributes::of(NoAttributesT{});
  const device::Operand operands[1];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kQueries; ++i) {
        EXPECT_EQ(device->query({Op::Copy, DType::f32, attributes, operands, operands}).reason, "");
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_FALSE(remembering.overlapped);
  EXPECT_EQ(remembering.answers(), kThreads * kQueries);
}

// 64 MiB, of which 10 are left, in blocks of at most 32.
class SmallDevice : public HostDevice {
 public:
  SmallDevice() { capabilities_.max_buffer_bytes = 32 << 20; }
  const device::Capabilities& capabilities() const override { return capabilities_; }
  Result<device::MemoryInfo> memory_info() override {
    return device::MemoryInfo{64 << 20, 10 << 20};
  }
  Result<Buffer> allocate(uint64_t bytes, MemoryKind kind) override {
    ++allocations;
    return HostDevice::allocate(bytes, kind);
  }
  int allocations = 0;

 private:
  device::Capabilities capabilities_;
};

TEST(OpenDevice, RefusesWhatTheDeviceCannotHoldBeforeItIsAsked) {
  auto own = std::make_unique<SmallDevice>();
  const SmallDevice& small = *own;
  const auto device = open_for_test("small", std::move(own));
  const auto refusal = [&](uint64_t bytes, MemoryKind kind) {
    const Result<Buffer> buffer = device->allocate(bytes, kind);
    EXPECT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), Code::out_of_memory);
    return buffer.status().message();
  };
  EXPECT_EQ(refusal((32 << 20) + 1, MemoryKind::device),
            "A block of 33554433 bytes is asked of device small, whose largest has 33554432.");
  EXPECT_EQ(refusal((32 << 20) + 1, MemoryKind::io),
            "A block of 33554433 bytes is asked of device small, whose largest has 33554432.");
  EXPECT_EQ(refusal((10 << 20) + 1, MemoryKind::device),
            "10485761 bytes are asked of device small, which has 10485760 of 67108864 left.");
  EXPECT_EQ(small.allocations, 0);
  EXPECT_EQ(device->counters().live_bytes, 0u);
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::io}) {
    device->free(must(device->allocate(10 << 20, kind)), 10 << 20);
  }
  EXPECT_EQ(small.allocations, 2);
}

TEST(OpenDevice, CountsWhatTheDeviceHoldsForCopies) {
  class Staging : public HostDevice {
   public:
    const device::Capabilities& capabilities() const override { return own_; }

   private:
    device::Capabilities own_ = {.staging_bytes = 4096};
  };
  const auto device = open_for_test("staging", std::make_unique<Staging>());
  EXPECT_EQ(device->counters().live_bytes, 4096u);
  EXPECT_EQ(device->counters().peak_bytes, 4096u);
}

TEST(OpenDevice, EveryDeviceRefusesMoreThanThereIs) {
  for (const DeviceInfo& info : Device::list()) {
    if (!info.unusable.empty()) {
      continue;
    }
    SCOPED_TRACE(info.name);
    const Device device = must(Device::open(info.name));
    const Result<Buffer> buffer = device.handle()->allocate(uint64_t{1} << 50, MemoryKind::device);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), Code::out_of_memory);
    EXPECT_NE(buffer.status().message().find("1125899906842624 bytes"), std::string::npos)
        << buffer.status().message();
    EXPECT_EQ(device.counters().live_bytes, device.handle()->capabilities().staging_bytes);
  }
}

}  // namespace
}  // namespace bowline::test
