// OpenDevice serializes calls, and makes no allocation that the device cannot hold or that exceeds
// its memory budget.
#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "api/internals.h"
#include "device/choice.h"
#include "faults/host_device.h"
#include "faults/wrapped_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using device::Buffer;
using device::MemoryKind;

// A device whose self test fails if `problem` is not empty.
class TestedDevice : public HostDevice {
 public:
  explicit TestedDevice(const char* problem) : problem_(problem) {}
  Result<std::vector<std::string>> self_test() override {
    if (*problem_ != 0) {
      return Status(Code::unsupported, problem_);
    }
    return std::vector<std::string>();
  }

 private:
  const char* problem_;
};

class TestedBackend : public device::Backend {
 public:
  TestedBackend(const char* name, int rank, const char* problem)
      : name_(name), rank_(rank), problem_(problem) {}
  std::string_view name() const override { return name_; }
  bool single() const override { return true; }
  int rank() const override { return rank_; }
  std::vector<DeviceInfo> enumerate() const override { return {DeviceInfo{}}; }
  Result<std::unique_ptr<device::Device>> open(int, const DeviceOptions&) const override {
    return std::unique_ptr<device::Device>(new TestedDevice(problem_));
  }

 private:
  const char* name_;
  int rank_;
  const char* problem_;
};

TEST(OpenBest, TakesTheNextDeviceIfTheSelfTestFails) {
  const TestedBackend fast("fast", 90, "Its sums are wrong.");
  const TestedBackend slow("slow", 40, "");
  const TestedBackend cpu("cpu", 1, "");
  const device::Backend* const all[] = {&cpu, &slow, &fast};
  for (const char* name : {"best", "gpu"}) {
    const auto opened = must(device::open_best(all, {name}, {}));
    EXPECT_EQ(opened->info().name, "slow");
    EXPECT_EQ(opened->info().notice, "Device fast is not used. Its sums are wrong.");
  }
  const device::Backend* const without[] = {&cpu, &fast};
  EXPECT_EQ(must(device::open_best(without, {"best"}, {}))->info().name, "cpu");
  const auto gpu = device::open_best(without, {"gpu"}, {});
  EXPECT_EQ(gpu.status().code(), Code::unsupported);
  EXPECT_TRUE(gpu.status().message().starts_with("No usable GPU was found."));
  // A device that only plans is not tested.
  EXPECT_EQ(must(device::open_best(all, {"best", {}, true}, {}))->info().name, "fast");
}

// Its query changes state, as a query that asks a library for plans does.
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

// Its copies block until they are released, and are recorded.
class SlowDevice : public HostDevice {
 public:
  Status copy_in(Buffer to, uint64_t, std::span<const std::byte>) override {
    copied.push_back(to.id);
    inside.release();
    go_on.acquire();
    return {};
  }
  std::vector<uint64_t> copied;  // read when all threads have ended
  std::counting_semaphore<> inside{0}, go_on{0};
};

// A caller in a loop does not starve the others: each gets a turn before it gets its next turn.
TEST(OpenDevice, ServesWhoAsksFirst) {
  constexpr uint64_t kThreads = 3;
  constexpr uint64_t kCopies = 20;
  auto own = std::make_unique<SlowDevice>();
  SlowDevice& slow = *own;
  const auto device = open_for_test("slow", std::move(own));
  std::atomic<uint64_t> calling = kThreads;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kCopies; ++i) {
        EXPECT_OK(device->copy_in({t + 1}, 0, {}));
      }
      --calling;
    });
  }
  for (uint64_t i = 0; i < kThreads * kCopies; ++i) {
    slow.inside.acquire();
    // The other callers are in the queue.
    while (device->waiting() + 1 < calling) {
      std::this_thread::yield();
    }
    slow.go_on.release();
  }
  for (std::thread& t : threads) {
    t.join();
  }
  ASSERT_EQ(slow.copied.size(), kThreads * kCopies);
  for (size_t i = kThreads; i < slow.copied.size(); ++i) {
    EXPECT_EQ(slow.copied[i], slow.copied[i - kThreads]) << "copy " << i;
  }
}

// Computes in submit(), and pauses there if another call waits.
class ComputingDevice : public HostDevice {
 public:
  void set_pause(std::function<void()> pause) override { pause_ = std::move(pause); }
  Status submit(std::span<device::Recording* const>) override {
    inside.release();
    go_on.acquire();
    copies_before = copies;
    while (copies == 0) {
      pause_();
    }
    return {};
  }
  Status copy_in(Buffer, uint64_t, std::span<const std::byte>) override {
    ++copies;
    return {};
  }
  std::atomic<int> copies = 0;
  int copies_before = -1;
  std::binary_semaphore inside{0}, go_on{0};

 private:
  std::function<void()> pause_;
};

// Ends when the other call was served.
TEST(OpenDevice, ServesOthersBetweenTheRecordsOfASubmission) {
  auto own = std::make_unique<ComputingDevice>();
  ComputingDevice& computing = *own;
  const auto device = open_for_test("computing", std::move(own));
  std::thread large([&] { EXPECT_OK(device->submit({})); });
  computing.inside.acquire();
  std::thread small([&] { EXPECT_OK(device->copy_in({1}, 0, {})); });
  while (device->waiting() == 0) {
    std::this_thread::yield();
  }
  computing.go_on.release();
  large.join();
  small.join();
  EXPECT_EQ(computing.copies_before, 0);
}

TEST(OpenDevice, ServesNobodyBetweenTheCallsOfOneThatHoldsIt) {
  auto own = std::make_unique<SlowDevice>();
  SlowDevice& slow = *own;
  const auto device = open_for_test("slow", std::move(own));
  slow.go_on.release(3);
  std::optional<device::OpenDevice::Hold> hold(*device);
  EXPECT_OK(device->copy_in({1}, 0, {}));
  std::thread other([&] { EXPECT_OK(device->copy_in({2}, 0, {})); });
  while (device->waiting() == 0) {
    std::this_thread::yield();
  }
  EXPECT_OK(device->copy_in({1}, 0, {}));
  hold.reset();
  other.join();
  EXPECT_EQ(slow.copied, (std::vector<uint64_t>{1, 1, 2}));
}

class CountingPauses : public WrappedDevice {
 public:
  explicit CountingPauses(int& pauses) : WrappedDevice(open_cpu()), pauses_(pauses) {}
  void set_pause(std::function<void()> pause) override {
    inner().set_pause([this, pause] {
      ++pauses_;
      pause();
    });
  }

 private:
  int& pauses_;
};

TEST(OpenDevice, TheCpuPausesBehindEveryRecord) {
  int pauses = 0;
  const Device device = wrap("counting", std::make_unique<CountingPauses>(pauses));
  Seed s = lm32();
  must(s.model.to(device));
  Session session = must(Session::create(s.model, device, "loss", {}));
  logits_of(session, s);  // makes copies of weights, if any
  pauses = 0;
  logits_of(session, s);
  EXPECT_EQ(pauses, static_cast<int>(must(session.describe()).segments.at(0).records.size()));
}

// 64 MiB with 10 MiB free, in blocks of at most 32 MiB.
class SmallDevice : public HostDevice {
 public:
  explicit SmallDevice(bool host_memory = false) {
    capabilities_.max_buffer_bytes = 32 << 20;
    capabilities_.host_memory = host_memory;
  }
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
            "A block of 33554433 bytes does not fit on device small; its largest block can have "
            "33554432 bytes.");
  EXPECT_EQ(refusal((32 << 20) + 1, MemoryKind::io),
            "A block of 33554433 bytes does not fit on device small; its largest block can have "
            "33554432 bytes.");
  EXPECT_EQ(refusal((10 << 20) + 1, MemoryKind::device),
            "10485761 bytes do not fit on device small: 10485760 of its 67108864 bytes are free.");
  EXPECT_EQ(small.allocations, 0);
  EXPECT_EQ(device->counters().live_bytes, 0u);
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::io}) {
    device->free(must(device->allocate(10 << 20, kind)), 10 << 20);
  }
  EXPECT_EQ(small.allocations, 2);
}

device::Demand blocks(int count, uint64_t bytes) {
  device::Demand demand;
  for (int i = 0; i < count; ++i) {
    demand.add(bytes, MemoryKind::device);
  }
  return demand;
}

// The free memory of a GPU is known exactly. That of a host is an estimate, so only its total
// memory is a limit.
TEST(OpenDevice, ComparesAllBlocksTogetherWithWhatThereIs) {
  const auto gpu = open_for_test("gpu", std::make_unique<SmallDevice>());
  EXPECT_OK(gpu->require_room(blocks(5, 2 << 20)));
  const Status full = gpu->require_room(blocks(6, 2 << 20));
  EXPECT_EQ(full.code(), Code::out_of_memory);
  EXPECT_EQ(full.message(),
            "12582912 bytes do not fit on device gpu: 10485760 of its 67108864 bytes are free.");
  EXPECT_EQ(gpu->require_room(blocks(1, (32 << 20) + 1)).message(),
            "A block of 33554433 bytes does not fit on device gpu; its largest block can have "
            "33554432 bytes.");
  const auto host = open_for_test("host", std::make_unique<SmallDevice>(true));
  EXPECT_OK(host->require_room(blocks(32, 2 << 20)));
  const Status more = host->require_room(blocks(33, 2 << 20));
  EXPECT_EQ(more.code(), Code::out_of_memory);
  EXPECT_EQ(more.message(), "69206016 bytes do not fit on device host, which has 67108864 bytes.");
  // Inputs and outputs are in other memory.
  device::Demand io;
  for (int i = 0; i < 64; ++i) {
    io.add(2 << 20, MemoryKind::io);
  }
  EXPECT_OK(gpu->require_room(io));
  EXPECT_OK(host->require_room(io));
}

TEST(OpenDevice, SumsThatDoNotFitInANumberAreRefused) {
  const auto device = open_for_test("small", std::make_unique<HostDevice>(), 100);
  const Status s = device->require_room(blocks(3, uint64_t{1} << 63));
  EXPECT_EQ(s.code(), Code::over_budget);
  EXPECT_EQ(s.message(),
            "18446744073709551615 bytes do not fit on device small: 0 bytes are in use, and its "
            "memory budget is 100.");
}

TEST(OpenDevice, HoldsNoMoreThanItsBudget) {
  auto own = std::make_unique<SmallDevice>();
  const SmallDevice& small = *own;
  const auto device = open_for_test("small", std::move(own), 1000);
  const Buffer first = must(device->allocate(600, MemoryKind::device));
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::io}) {
    const Result<Buffer> refused = device->allocate(401, kind);
    EXPECT_EQ(refused.status().code(), Code::over_budget);
    EXPECT_EQ(refused.status().message(),
              "401 bytes do not fit on device small: 600 bytes are in use, and its memory budget "
              "is 1000.");
    EXPECT_EQ(device->require_room(blocks(1, 401)).code(), Code::over_budget);
    EXPECT_OK(device->require_room(blocks(4, 100)));
  }
  EXPECT_EQ(small.allocations, 1);
  const Buffer second = must(device->allocate(400, MemoryKind::io));
  EXPECT_EQ(device->allocate(1, MemoryKind::io).status().code(), Code::over_budget);
  device->free(first, 600);
  device->free(must(device->allocate(600, MemoryKind::device)), 600);
  device->free(second, 400);
  EXPECT_EQ(device->counters().live_bytes, 0u);
  EXPECT_EQ(device->counters().peak_bytes, 1000u);
}

// Its recordings use 500 bytes each.
class RecordingDevice : public HostDevice {
 public:
  struct Holding : device::Recording {
    explicit Holding(int& alive) : alive_(alive) { ++alive_; }
    ~Holding() override { --alive_; }
    uint64_t overhead_bytes() const override { return 500; }

   private:
    int& alive_;
  };
  Result<std::unique_ptr<device::Recording>> record(const device::Program&,
                                                    std::span<const Buffer>) override {
    return std::unique_ptr<device::Recording>(std::make_unique<Holding>(alive));
  }
  int alive = 0;
};

TEST(OpenDevice, ARecordingThatExceedsTheBudgetIsGoneAgain) {
  auto own = std::make_unique<RecordingDevice>();
  const RecordingDevice& recording = *own;
  const auto device = open_for_test("recording", std::move(own), 1400);
  std::unique_ptr<device::Recording> kept[] = {must(device->record({}, {})),
                                               must(device->record({}, {}))};
  const auto refused = device->record({}, {});
  EXPECT_EQ(refused.status().code(), Code::over_budget);
  EXPECT_EQ(refused.status().message(),
            "500 bytes do not fit on device recording: 1000 bytes are in use, and its memory "
            "budget is 1400.\n- While recording a plan.");
  EXPECT_EQ(recording.alive, 2);
  EXPECT_EQ(device->counters().records, 2u);
  EXPECT_EQ(device->counters().live_bytes, 1000u);
  EXPECT_EQ(device->counters().peak_bytes, 1000u);
  for (auto& r : kept) {
    device->release(std::move(r));
  }
  EXPECT_EQ(device->counters().live_bytes, 0u);
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
    const Result<Buffer> buffer =
        Internals::open(device)->allocate(uint64_t{1} << 50, MemoryKind::device);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), Code::out_of_memory);
    EXPECT_NE(buffer.status().message().find("1125899906842624 bytes"), std::string::npos)
        << buffer.status().message();
    EXPECT_EQ(device.counters().live_bytes, Internals::open(device)->capabilities().staging_bytes);
  }
}

}  // namespace
}  // namespace bowline::test
