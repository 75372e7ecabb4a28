// Processes that train one model, as threads that exchange bytes in memory.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "faults/faulty_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test::processes {

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
  uint64_t backend_bytes = 0;    // see MemoryReport
  Status failed;                 // what ended the run
  std::vector<Status> failures;  // of steps
  bool fired = false;            // a call of the device failed
};

inline std::vector<std::byte> weights_of(const Model& model) {
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
// then saves. Call `fail_at` of the device fails, counted from the first step; the process repeats
// what failed if the Trainer allows it.
struct Part {
  std::string resume = {};
  std::string save = {};
  uint64_t steps = 3;
  uint32_t stop = 0;
  uint64_t seed = 1;
  int fail_at = 0;
  Code code = Code::out_of_memory;
  const char* fails = nullptr;  // see Fault::only
};

inline Outcome train_part(const Job& run, const Part& part, std::shared_ptr<ProcessGroup> group) {
  Outcome out;
  TinyLm lm = tiny_lm(2, run.dropout, part.seed);
  const auto fault = std::make_shared<Fault>();
  const Device device =
      part.fail_at == 0
          ? open_test_device(run.device)
          : wrap("faulty", std::make_unique<FaultyDevice>(
                               open_first(run.device.substr(0, run.device.find(':'))), fault));
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
  fault->arm(part.fail_at, part.code);
  fault->only = part.fails;
  while (out.failed.ok() && (t.steps() < part.steps || t.accumulated() < part.stop)) {
    const uint32_t mine = t.accumulated() + rank;
    const auto number = static_cast<uint32_t>(t.steps() * run.accumulation + mine);
    auto report = mine < run.accumulation ? t.micro_step(lm.data(number)) : t.micro_step({});
    if (!report.ok() && t.state() == TrainState::gradients_lost && out.failures.empty()) {
      must(t.restart_step());
    }
    if (!report.ok()) {
      out.failures.push_back(report.status());
      const bool ends = t.state() != TrainState::ready || out.failures.size() > 1;
      out.failed = ends ? report.status() : Status();
    } else if (report.value()) {
      out.losses.push_back(report.value()->loss);
      out.norms.push_back(report.value()->grad_norm);
    }
  }
  if (out.failed.ok() && !part.save.empty()) {
    out.failed = t.save(part.save, {});
    if (!out.failed.ok() && t.state() == TrainState::ready) {
      out.failed = t.save(part.save, {});
    }
  }
  out.fired = fault->fired();
  fault->disarm();
  out.backend_bytes = t.memory().backend_bytes;
  out.weights = weights_of(lm.model);
  for (const StorageInfo& s : must(lm.model.describe()).storages) {
    out.moment_bytes += s.role == StorageRole::moment && !s.empty ? s.bytes : 0;
  }
  return out;
}

// Calls `process` with each group, in threads of their own.
inline std::vector<Outcome> together(
    uint32_t processes, const std::function<Outcome(std::shared_ptr<ProcessGroup>)>& process,
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

inline std::vector<Outcome> train_together(uint32_t processes, const Job& run,
                                           const Part& part = {}) {
  return together(processes, [&](auto group) { return train_part(run, part, std::move(group)); });
}

void expect_same(const Outcome& a, const Outcome& b);

// Lets the n-th call of the device fail in one of two processes, n = 1, 1 + stride, ... The failure
// is reported by both. Where they can go on, they have the bits of a run without failures.
inline void expect_agreement_on_failures(const Job& run, const Part& part, Code code, int stride) {
  const Outcome whole = train_together(2, run, part)[0];
  for (const uint32_t faulty : {0u, 1u}) {
    int went_on = 0, n = 1;
    for (bool fired = true; fired; n += stride) {
      SCOPED_TRACE(format("call {} of process {}", n, faulty));
      const std::vector<Outcome> all = together(2, [&](auto group) {
        Part mine = part;
        mine.fail_at = group->rank() == faulty ? n : 0;
        mine.code = code;
        return train_part(run, mine, std::move(group));
      });
      fired = all[faulty].fired;
      EXPECT_EQ(all[0].failures.size(), all[1].failures.size());
      EXPECT_EQ(all[0].failed.code(), all[1].failed.code()) << all[0].failed.message() << "\n"
                                                            << all[1].failed.message();
      if (all[0].failed.ok() && all[1].failed.ok()) {
        went_on += fired && !all[0].failures.empty() ? 1 : 0;
        expect_same(all[0], whole);
        expect_same(all[1], whole);
      }
      if (testing::Test::HasFailure()) {
        return;
      }
    }
    EXPECT_GT(n, 60);
    EXPECT_GT(went_on, 50 / stride);
  }
}

inline void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_OK(a.failed);
  EXPECT_OK(b.failed);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(a.weights == b.weights);
}

// Without by_micro_batch, several processes have the results of one up to rounding.
inline void expect_close(const std::vector<Outcome>& all, const Outcome& one) {
  EXPECT_OK(all[0].failed);
  for (const Outcome& each : all) {
    EXPECT_TRUE(each.weights == all[0].weights);
  }
  ASSERT_EQ(all[0].losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(all[0].losses[i], one.losses[i], 1e-5f * one.losses[i]);
    EXPECT_NEAR(all[0].norms[i], one.norms[i], 1e-4f * one.norms[i]);
  }
}

}  // namespace bowline::test::processes
