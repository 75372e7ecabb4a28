// Several processes train one model. Here they are threads that exchange bytes in memory.
#include <cmath>
#include <cstring>
#include <filesystem>

#include "faults/host_device.h"
#include "train/process_threads.h"

namespace bowline::test::processes {
namespace {

const std::vector<Job> kJobs = {
    {},
    {.accumulation = 5},
    {.optimizer = {"sgd", {{"momentum", 0.9f}}}, .clip_norm = 0.01f},
    {.optimizer = {"adafactor"}, .clip_norm = 0},
    {.adapter = true},
    // The device has copies of the weights in bf16, which follow the weights of another process.
    {.compute = DType::bf16},
};

TEST(Processes, HaveTheBitsOfOneProcess) {
  for (const Job& run : kJobs) {
    const Outcome one = train_part(run, {}, nullptr);
    ASSERT_EQ(one.losses.size(), 3u);
    for (const uint32_t processes : {2u, 3u}) {
      SCOPED_TRACE(format("{} {} processes", run.optimizer.name, processes));
      for (const Outcome& each : train_together(processes, run)) {
        expect_same(each, one);
      }
    }
  }
}

class ProcessesOn : public OnDevice {};

// bf16 weights have f32 masters, of which only the owner of a storage has one.
TEST_P(ProcessesOn, HaveTheBitsOfOneProcess) {
  for (const DType weights : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(weights));
    const Job run = {.accumulation = 3, .device = GetParam(), .weights = weights};
    const Outcome one = train_part(run, {}, nullptr);
    ASSERT_EQ(one.losses.size(), 3u);
    for (const Outcome& each : train_together(2, run)) {
      expect_same(each, one);
    }
  }
}
BOWLINE_ON_ALL_DEVICES(ProcessesOn);

TEST(Processes, DivideTheOptimizerState) {
  const Job run;
  const uint64_t whole = train_part(run, {}, nullptr).moment_bytes;
  uint64_t sum = 0;
  for (const Outcome& each : train_together(3, run)) {
    EXPECT_GT(each.moment_bytes, whole / 6);
    EXPECT_LT(each.moment_bytes, whole / 2);
    sum += each.moment_bytes;
  }
  EXPECT_EQ(sum, whole);
}

TEST(Processes, SumInPlaceUpToRounding) {
  Job run;
  run.sum = GradientSum::in_place;
  expect_close(train_together(2, run), train_part(run, {}, nullptr));
}

// A checkpoint between steps and one inside a step continue on another number of processes.
TEST(Processes, ResumeOnAnotherNumber) {
  const std::string path =
      (std::filesystem::temp_directory_path() / format("processes_{}.bowline", getpid())).string();
  Job run;
  run.accumulation = 6;
  const Outcome one = train_part(run, {}, nullptr);
  for (const uint32_t stop : {0u, 3u}) {
    for (const auto& [before, after] :
         std::vector<std::pair<uint32_t, uint32_t>>{{3, 2}, {1, 3}, {3, 1}}) {
      SCOPED_TRACE(format("{} {} {}", stop, before, after));
      const Part first = {.save = path, .steps = 1, .stop = stop};
      const Part second = {.resume = path};
      const auto go = [&](uint32_t processes, const Part& part) {
        return processes == 1 ? std::vector<Outcome>{train_part(run, part, nullptr)}
                              : train_together(processes, run, part);
      };
      for (const Outcome& each : go(before, first)) {
        EXPECT_OK(each.failed);
      }
      for (const Outcome& each : go(after, second)) {
        EXPECT_OK(each.failed);
        EXPECT_EQ(each.losses, std::vector<float>(one.losses.begin() + 1, one.losses.end()));
        EXPECT_TRUE(each.weights == one.weights);
      }
    }
  }
  std::filesystem::remove(path);
}

TEST(Processes, AgreeOnEveryFailedCall) {
  const std::string path =
      (std::filesystem::temp_directory_path() / format("agreed_{}.bowline", getpid())).string();
  for (const GradientSum sum : {GradientSum::by_micro_batch, GradientSum::in_place}) {
    const Job run = {.accumulation = 3, .sum = sum};
    expect_agreement_on_failures(run, {.save = path, .steps = 1, .stop = 2}, Code::out_of_memory,
                                 3);
  }
  std::filesystem::remove(path);
}

void expect_refused(const std::vector<Outcome>& all, const std::string& words) {
  for (const Outcome& each : all) {
    EXPECT_EQ(each.failed.code(), Code::bad_argument);
    EXPECT_NE(each.failed.message().find(words), std::string::npos) << each.failed.message();
  }
}

TEST(Processes, RefuseDifferentRuns) {
  const auto with = [](uint32_t processes, uint32_t which, const Job& run, const Part& part) {
    return together(processes, [&, which](auto group) {
      const bool differs = group->rank() == which;
      return train_part(differs ? run : Job(), differs ? part : Part(), group);
    });
  };
  expect_refused(with(3, 2, {}, {.seed = 2}), "the checksum of the weights");
  expect_refused(with(2, 1, {.accumulation = 2}, {}),
                 "the option accumulation is \"4\" in process 0 and \"2\" in process 1");
  expect_refused(with(2, 0, {.optimizer = {"sgd"}}, {}), "the option optimizer is \"sgd\"");
  expect_refused(with(2, 1, {.adapter = true}, {}), "in process 1");
  const auto other_version = [](uint32_t rank, Message& m) {
    const std::string_view own = version();
    const auto wanted = std::as_bytes(std::span(own));
    const auto at = std::search(m.begin(), m.end(), wanted.begin(), wanted.end());
    if (rank == 0 && at != m.end()) {
      *at = std::byte{'9'};
    }
  };
  expect_refused(
      together(
          2, [](auto group) { return train_part({}, {}, std::move(group)); }, other_version),
      "the version of Bowline is \"9");
}

TEST(Processes, ReturnTheErrorOfOneInAll) {
  const std::vector<Outcome> all = together(3, [](std::shared_ptr<ProcessGroup> group) {
    Outcome out;
    TinyLm lm = tiny_lm(2, 0.1f);
    const Device device = open_test_device("cpu");
    must(lm.model.to(device));
    TrainOptions o = adamw(lm);
    o.accumulation = 3;
    o.gradient_sum = GradientSum::by_micro_batch;
    o.processes = group;
    Trainer t = must(Trainer::create(lm.model, device, o));
    const std::vector<std::byte> before = weights_of(lm.model);
    const auto good = lm.data(group->rank());
    if (group->rank() == 1) {
      lm.labels[3] = 1000;
    }
    out.failed = t.micro_step(good).status();
    EXPECT_EQ(t.state(), TrainState::ready);
    EXPECT_EQ(t.accumulated(), 0u);
    EXPECT_TRUE(weights_of(lm.model) == before);
    // The step can be made again.
    EXPECT_OK(t.micro_step(lm.data(group->rank())).status());
    EXPECT_EQ(t.steps(), 1u);
    return out;
  });
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(all[r].failed.code(), Code::index_out_of_range);
    EXPECT_EQ(all[r].failed.message().starts_with("Process 1 of 3 failed: "), r != 1)
        << all[r].failed.message();
  }
}

}  // namespace
}  // namespace bowline::test::processes
