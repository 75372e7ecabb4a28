// Several processes train one model on GPUs that are linked by NCCL. The GPUs are emulated, and a
// stand-in takes the place of NCCL.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "train/process_threads.h"

namespace bowline::test::processes {
namespace {

constexpr const char* kDevice = "cuda-emu:0";

// The emulation reads the variable when it is first asked for a link.
const int chosen = setenv("BOWLINE_NCCL", BOWLINE_NCCL_STUB, 1);

// The functions of the stand-in.
struct Stub {
  uint64_t (*bytes_sent)() = nullptr;
  void (*fail_after)(int64_t groups, double seconds) = nullptr;
  void (*refuse)(bool refuses) = nullptr;

  Stub() {
    void* const library = dlopen(BOWLINE_NCCL_STUB, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      bytes_sent = reinterpret_cast<uint64_t (*)()>(dlsym(library, "stub_bytes_sent"));
      refuse = reinterpret_cast<void (*)(bool)>(dlsym(library, "stub_refuse"));
      fail_after = reinterpret_cast<void (*)(int64_t, double)>(dlsym(library, "stub_fail_after"));
    }
  }
};

class LinkedProcesses : public testing::Test {
 protected:
  void SetUp() override {
    BOWLINE_NEED(why_missing(kDevice));
    ASSERT_EQ(chosen, 0);
    ASSERT_NE(stub_.fail_after, nullptr);
    ASSERT_NE(stub_.refuse, nullptr);
  }
  void TearDown() override {
    if (stub_.fail_after != nullptr) {
      stub_.fail_after(INT64_MAX, 60);
      stub_.refuse(false);
    }
  }

  Stub stub_;
};

const std::vector<Job> kOnGpus = {
    {.accumulation = 5, .device = kDevice},
    {.accumulation = 3, .device = kDevice, .weights = DType::bf16},
    {.accumulation = 2, .adapter = true, .device = kDevice},
    {.accumulation = 2, .device = kDevice, .compute = DType::bf16},
};

TEST_F(LinkedProcesses, HaveTheBitsOfOneProcess) {
  for (const Job& run : kOnGpus) {
    const Outcome one = train_part(run, {}, nullptr);
    ASSERT_EQ(one.losses.size(), 3u);
    for (const uint32_t processes : {2u, 3u}) {
      SCOPED_TRACE(format("{} of {} processes", name_of(run.weights), processes));
      const uint64_t before = stub_.bytes_sent();
      for (const Outcome& each : train_together(processes, run)) {
        expect_same(each, one);
      }
      EXPECT_GT(stub_.bytes_sent(), before);
    }
  }
}

// Gradients do not go through the host: each exchange of the group has at most some 1000 bytes.
TEST_F(LinkedProcesses, LeaveOnlyNotesToTheGroup) {
  const Job run = kOnGpus[0];
  uint64_t most = 0;
  const auto change = [&](uint32_t rank, Message& m) {
    if (rank == 0) {
      most = std::max<uint64_t>(most, m.size());
    }
  };
  const auto all = together(
      2, [&](auto group) { return train_part(run, {}, std::move(group)); }, change);
  EXPECT_OK(all[0].failed);
  EXPECT_LT(most, 4096u);
}

TEST_F(LinkedProcesses, SumInPlaceUpToRounding) {
  Job run = kOnGpus[0];
  run.sum = GradientSum::in_place;
  expect_close(train_together(2, run), train_part(run, {}, nullptr));
}

// The sums of an unfinished step are in the memory of the devices.
TEST_F(LinkedProcesses, SaveAndResumeInsideAStep) {
  const std::string path =
      (std::filesystem::temp_directory_path() / format("linked_{}.bowline", getpid())).string();
  const Job run = {.accumulation = 5, .device = kDevice};
  const Outcome one = train_part(run, {}, nullptr);
  for (const auto& [before, after] : std::vector<std::pair<uint32_t, uint32_t>>{{2, 3}, {3, 1}}) {
    SCOPED_TRACE(format("{} {}", before, after));
    for (const Outcome& each :
         train_together(before, run, {.save = path, .steps = 1, .stop = before == 2 ? 2u : 3u})) {
      EXPECT_OK(each.failed);
    }
    const Part rest = {.resume = path};
    const std::vector<Outcome> resumed = after == 1
                                             ? std::vector<Outcome>{train_part(run, rest, nullptr)}
                                             : train_together(after, run, rest);
    for (const Outcome& each : resumed) {
      EXPECT_OK(each.failed);
      EXPECT_EQ(each.losses, std::vector<float>(one.losses.begin() + 1, one.losses.end()));
      EXPECT_TRUE(each.weights == one.weights);
    }
  }
  std::filesystem::remove(path);
}

// If the GPUs cannot be connected, the processes go on through the host.
TEST_F(LinkedProcesses, UseTheHostIfNcclCannotConnect) {
  const Outcome one = train_part(kOnGpus[0], {}, nullptr);
  stub_.refuse(true);
  const uint64_t before = stub_.bytes_sent();
  for (const Outcome& each : train_together(2, kOnGpus[0])) {
    expect_same(each, one);
  }
  EXPECT_EQ(stub_.bytes_sent(), before);
}

// The sums, and the gradients of each process. AdamW has two moments of the same size.
TEST_F(LinkedProcesses, CountTheMemoryOfTheSums) {
  const std::vector<Outcome> linked = train_together(2, kOnGpus[0]);
  stub_.refuse(true);
  const std::vector<Outcome> host = train_together(2, kOnGpus[0]);
  for (const uint32_t r : {0u, 1u}) {
    EXPECT_GT(linked[r].moment_bytes, 0u);
    EXPECT_EQ(linked[r].backend_bytes,
              host[r].backend_bytes + (1 + 2) * linked[r].moment_bytes / 2);
  }
}

TEST_F(LinkedProcesses, AgreeOnEveryFailedCall) {
  const std::string path =
      (std::filesystem::temp_directory_path() / format("agree_{}.bowline", getpid())).string();
  const Job run = {.accumulation = 3, .device = kDevice};
  stub_.fail_after(INT64_MAX, 0.2);
  for (const Code code : {Code::out_of_memory, Code::device_lost}) {
    expect_agreement_on_failures(run, {.save = path, .steps = 1, .stop = 2}, code, 11);
  }
  std::filesystem::remove(path);
}

// After a failed exchange, the processes connect again. Messages that still wait in the old link
// are lost with it.
TEST_F(LinkedProcesses, GoOnWithANewLink) {
  const Job run = {.accumulation = 4, .device = kDevice};
  const Outcome whole = train_together(2, run)[0];
  stub_.fail_after(INT64_MAX, 0.2);
  for (const int n : {1, 2, 3}) {
    SCOPED_TRACE(n);
    const std::vector<Outcome> all = together(2, [&](auto group) {
      const Part part = {.fail_at = group->rank() == 1 ? n : 0, .fails = "exchange"};
      return train_part(run, part, std::move(group));
    });
    EXPECT_TRUE(all[1].fired);
    for (const Outcome& each : all) {
      EXPECT_EQ(each.failures.size(), 1u);
      expect_same(each, whole);
    }
  }
}

// A failed exchange ends the run in all processes, whichever exchange it is.
TEST_F(LinkedProcesses, ReportAFailedExchange) {
  for (const int64_t groups : {0, 1, 3, 6}) {
    SCOPED_TRACE(groups);
    stub_.fail_after(groups, 1);
    for (const Outcome& each : train_together(2, kOnGpus[0])) {
      EXPECT_EQ(each.failed.code(), Code::device_lost) << each.failed.message();
      EXPECT_NE(each.failed.message().find("NCCL fails to"), std::string::npos)
          << each.failed.message();
    }
  }
}

}  // namespace
}  // namespace bowline::test::processes
