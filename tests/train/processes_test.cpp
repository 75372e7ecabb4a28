// Several processes train one model. Here they are threads that exchange bytes in memory.
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "faults/host_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test::processes {
namespace {

using Message = std::vector<std::byte>;

// The messages between the threads.
struct Mail {
  explicit Mail(uint32_t processes) : size(processes), boxes(processes * processes) {}
  uint32_t size;
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::deque<Message>> boxes;  // [from * size + to]
};

class ThreadGroup : public ProcessGroup {
 public:
  // `before` may change what this process sends.
  ThreadGroup(Mail& mail, uint32_t rank, std::function<void(Message&)> before = {})
      : mail_(mail), rank_(rank), before_(std::move(before)) {}
  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return mail_.size; }

  Status exchange(std::span<const std::span<const std::byte>> to,
                  std::span<const std::span<std::byte>> from) override {
    std::unique_lock lock(mail_.mutex);
    for (uint32_t r = 0; r < mail_.size; ++r) {
      if (r != rank_ && !to[r].empty()) {
        Message& message =
            mail_.boxes[rank_ * mail_.size + r].emplace_back(to[r].begin(), to[r].end());
        if (before_) {
          before_(message);
        }
        bytes += message.size();
      }
    }
    mail_.arrived.notify_all();
    for (uint32_t r = 0; r < mail_.size; ++r) {
      if (r == rank_ || from[r].empty()) {
        continue;
      }
      std::deque<Message>& box = mail_.boxes[r * mail_.size + rank_];
      if (!mail_.arrived.wait_for(lock, std::chrono::seconds(60), [&] { return !box.empty(); })) {
        return Status(Code::device_lost, format("Process {} does not answer.", r));
      }
      EXPECT_EQ(box.front().size(), from[r].size());
      std::ranges::copy(box.front(), from[r].begin());
      box.pop_front();
    }
    return {};
  }

  uint64_t bytes = 0;

 private:
  Mail& mail_;
  uint32_t rank_;
  std::function<void(Message&)> before_;
};

// A run: its options, and a change to the model before training.
struct Job {
  uint32_t accumulation = 4;
  Optimizer optimizer = {};
  float clip_norm = 1;
  bool adapter = false;
  GradientSum sum = GradientSum::by_micro_batch;
  float dropout = 0.1f;
  std::string device = "cpu";
  DType weights = DType::f32;
  std::optional<DType> compute = {};
};

struct Outcome {
  std::vector<float> losses;
  std::vector<float> norms;
  std::vector<std::byte> weights;
  uint64_t moment_bytes = 0;
  Status failed;
};

std::vector<std::byte> weights_of(const Model& model) {
  std::vector<std::byte> out;
  for (const StorageInfo& s : must(model.describe()).storages) {
    if (!s.empty && !is_training(s.role)) {
      const auto bytes = must(model.storage_bytes(s.tie));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

// What one process does. It trains up to step `steps`, or to micro-batch `stop` of the next step,
// then saves.
struct Part {
  std::string resume = {};
  std::string save = {};
  uint64_t steps = 3;
  uint32_t stop = 0;
  uint64_t seed = 1;
};

Outcome train_part(const Job& run, const Part& part, std::shared_ptr<ProcessGroup> group) {
  Outcome out;
  TinyLm lm = tiny_lm(2, run.dropout, part.seed);
  const Device device = open_test_device(run.device);
  must(lm.model.cast(run.weights));
  if (run.adapter) {
    must(add_adapter(lm.model, "a",
                     {.rank = 2, .alpha = 4, .target = "*", .seed = 3, .dropout = 0.1f}));
  }
  must(lm.model.to(device));
  TrainOptions o = adamw(lm);
  o.accumulation = run.accumulation;
  o.optimizer = run.optimizer;
  o.clip_norm = run.clip_norm;
  o.gradient_sum = run.sum;
  o.precision.compute_dtype = run.compute;
  o.processes = group;
  Result<Trainer> made = Trainer::create(lm.model, device, o);
  if (!made.ok()) {
    out.failed = made.status();
    return out;
  }
  Trainer& t = made.value();
  if (!part.resume.empty()) {
    out.failed = t.resume(part.resume).status();
  }
  const uint32_t rank = group ? group->rank() : 0;
  while (out.failed.ok() && (t.steps() < part.steps || t.accumulated() < part.stop)) {
    const uint32_t mine = t.accumulated() + rank;
    const auto number = static_cast<uint32_t>(t.steps() * run.accumulation + mine);
    auto report = mine < run.accumulation ? t.micro_step(lm.data(number)) : t.micro_step({});
    if (!report.ok()) {
      out.failed = report.status();
    } else if (report.value()) {
      out.losses.push_back(report.value()->loss);
      out.norms.push_back(report.value()->grad_norm);
    }
  }
  if (out.failed.ok() && !part.save.empty()) {
    out.failed = t.save(part.save, {});
  }
  out.weights = weights_of(lm.model);
  for (const StorageInfo& s : must(lm.model.describe()).storages) {
    out.moment_bytes += s.role == StorageRole::moment && !s.empty ? s.bytes : 0;
  }
  return out;
}

// Calls `process` with each group, in threads of their own.
std::vector<Outcome> together(uint32_t processes,
                              const std::function<Outcome(std::shared_ptr<ProcessGroup>)>& process,
                              const std::function<void(uint32_t, Message&)>& change = {}) {
  Mail mail(processes);
  std::vector<Outcome> out(processes);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < processes; ++r) {
    threads.emplace_back([&, r] {
      std::function<void(Message&)> before;
      if (change) {
        before = [&change, r](Message& m) { change(r, m); };
      }
      out[r] = process(std::make_shared<ThreadGroup>(mail, r, before));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return out;
}

std::vector<Outcome> train_together(uint32_t processes, const Job& run, const Part& part = {}) {
  return together(processes, [&](auto group) { return train_part(run, part, std::move(group)); });
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_OK(a.failed);
  EXPECT_OK(b.failed);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(a.weights == b.weights);
}

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
  const Outcome one = train_part(run, {}, nullptr);
  const std::vector<Outcome> two = train_together(2, run);
  EXPECT_OK(two[0].failed);
  EXPECT_TRUE(two[0].weights == two[1].weights);
  ASSERT_EQ(two[0].losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(two[0].losses[i], one.losses[i], 1e-5f * one.losses[i]);
    EXPECT_NEAR(two[0].norms[i], one.norms[i], 1e-4f * one.norms[i]);
  }
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
    const auto at = std::ranges::search(m, std::as_bytes(std::span(own))).begin();
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
