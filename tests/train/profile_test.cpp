// A profile requests times from the device. A run without a profile requests none and reads no
// clock.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "faults/wrapped_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

std::atomic<uint64_t> clock_reads = 0;

struct Counted {
  uint64_t submits = 0;
  uint64_t timestamps = 0;
};

class CountingDevice : public WrappedDevice {
 public:
  CountingDevice(std::unique_ptr<device::Device> inner, std::shared_ptr<Counted> asked)
      : WrappedDevice(std::move(inner)), asked_(std::move(asked)) {}
  Status submit(std::span<device::Recording* const> recordings) override {
    ++asked_->submits;
    return WrappedDevice::submit(recordings);
  }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override {
    ++asked_->timestamps;
    return WrappedDevice::timestamps(recording);
  }

 private:
  std::shared_ptr<Counted> asked_;
};

double sum_of(const std::vector<NodeTime>& times) {
  double ns = 0;
  for (const NodeTime& t : times) {
    ns += t.ns;
  }
  return ns;
}

TEST(Profile, NothingIsTimedWhereNoneIsAskedFor) {
  const auto asked = std::make_shared<Counted>();
  const Device device = wrap("counting", std::make_unique<CountingDevice>(open_cpu(1), asked));
  TinyLm lm = tiny_lm(1);
  ASSERT_OK(lm.model.to(device));
  Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
  Session s = must(Session::create(lm.model, device, "loss", lm.dims()));
  const auto run_all = [&] {
    must(t.micro_step(lm.data(0)));
    must(t.evaluate(lm.data(1)));
    ASSERT_OK(s.run(lm.data(2), {}));
  };
  run_all();  // builds the plans
  *asked = {};
  clock_reads = 0;
  run_all();
  EXPECT_EQ(asked->submits, 3u);
  EXPECT_EQ(asked->timestamps, 0u);
  EXPECT_EQ(clock_reads, 0u);

  // Each of the two recordings of a step once, and the recording of a session once.
  EXPECT_GT(sum_of(must(t.profile(lm.data(3)))), 0);
  EXPECT_EQ(asked->timestamps, 2u);
  EXPECT_GT(clock_reads, 0u);
  EXPECT_GT(sum_of(must(s.profile(lm.data(3)))), 0);
  EXPECT_EQ(asked->timestamps, 3u);
  EXPECT_EQ(asked->submits, 3u);

  // Runs after a profile do not read the clock.
  clock_reads = 0;
  run_all();
  EXPECT_EQ(asked->timestamps, 3u);
  EXPECT_EQ(clock_reads, 0u);
}

}  // namespace
}  // namespace bowline::test

// Counts the reads of the clock by all libraries.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  ++bowline::test::clock_reads;
  return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
}
