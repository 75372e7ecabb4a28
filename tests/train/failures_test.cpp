// The n-th contract call of every call of a Trainer and a Session fails, n = 1, 2, ... until the call is clean. What follows is
// what the header promises: all is as before, or state() says how to go on; and then the run has the bits of one without failure.
#include <unistd.h>

#include <cstdio>

#include "faults/faulty_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

struct Setting {
  const char* name;
  bool pieces;  // submissions fail between their recordings
  uint32_t accumulation;
  Code code;
};

// One run: a model on a device that fails, what trains and runs it, and what it printed so far.
struct World {
  explicit World(const Setting& setting) : accumulation(setting.accumulation) {
    auto cpu = open_cpu();
    device.emplace(setting.pieces
                       ? wrap("pieces", std::make_unique<PiecewiseDevice>(std::move(cpu), fault))
                       : wrap("faulty", std::make_unique<FaultyDevice>(std::move(cpu), fault)));
    EXPECT_OK(lm.model.to(*device));
  }

  uint32_t accumulation;
  std::shared_ptr<Fault> fault = std::make_shared<Fault>();
  std::optional<Device> device;
  TinyLm lm = tiny_lm(1);
  std::optional<Trainer> trainer;
  std::optional<Session> session;
  uint32_t next = 0;      // number of the next batch
  uint32_t snapshot = 0;  // `next` when it was taken
  std::string path = testing::TempDir() + "bowline_failures_" + std::to_string(getpid());
  std::vector<float> seen;  // losses and norms of the finished steps, by step

  TrainOptions options() const {
    TrainOptions o = adamw(lm);
    o.accumulation = accumulation;
    return o;
  }
  // Weights and moments: gradients mean nothing between steps.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    for (const StorageInfo& s : must(lm.model.describe()).storages) {
      if (!s.empty && s.role != StorageRole::gradient) {
        const auto row = must(lm.model.storage_bytes(s.tie));
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  }
};

using Act = Status (*)(World&);

Status create(World& w) {
  BOWLINE_ASSIGN(Trainer t, Trainer::create(w.lm.model, *w.device, w.options()));
  w.trainer.emplace(std::move(t));
  return {};
}

Status create_session(World& w) {
  BOWLINE_ASSIGN(Session s, Session::create(w.lm.model, *w.device, "loss", w.lm.dims()));
  w.session.emplace(std::move(s));
  return {};
}

Status micro_step(World& w) {
  BOWLINE_ASSIGN(const auto report, w.trainer->micro_step(w.lm.data(w.next)));
  ++w.next;
  if (report) {
    w.seen.resize(std::max<size_t>(w.seen.size(), 2 * report->step));
    w.seen[2 * report->step - 2] = report->loss;
    w.seen[2 * report->step - 1] = report->grad_norm;
  }
  return {};
}

Status evaluate(World& w) { return w.trainer->evaluate(w.lm.data(1000)).status(); }

Status run(World& w) {
  Floats loss(1);
  const Dims scalar;
  const Tensor outputs[] = {tensor("loss", scalar, loss)};
  return w.session->run(w.lm.data(1000), outputs);
}

Status snapshot(World& w) {
  BOWLINE_TRY(w.trainer->snapshot());
  w.snapshot = w.next;
  return {};
}

Status rollback(World& w) {
  BOWLINE_TRY(w.trainer->rollback());
  w.next = w.snapshot;
  return {};
}

Status save(World& w) {
  Progress p;
  p.data_cursor = w.next;
  return w.trainer->save(w.path, p);
}

Status resume(World& w) {
  BOWLINE_ASSIGN(const Progress p, w.trainer->resume(w.path));
  w.next = static_cast<uint32_t>(p.data_cursor);
  return {};
}

// The next call plans again.
Status freeze(World& w) { return w.lm.model.freeze("norm"); }

struct Line {
  const char* name;
  Act act;
};

constexpr Line kScript[] = {
    {"create", create},
    {"create_session", create_session},
    {"snapshot", snapshot},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"evaluate", evaluate},
    {"run", run},
    {"freeze", freeze},
    {"snapshot", snapshot},
    {"run", run},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"save", save},
    {"micro_step", micro_step},
    {"rollback", rollback},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"resume", resume},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
};

struct Outcome {
  std::vector<std::byte> bytes;
  std::vector<float> seen;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(World& w) { return {w.bytes(), w.seen}; }

class Failures : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, Failures,
                         testing::Values(Setting{"whole_1", false, 1, Code::internal},
                                         Setting{"whole_3", false, 3, Code::out_of_memory},
                                         Setting{"pieces_1", true, 1, Code::device_lost},
                                         Setting{"pieces_3", true, 3, Code::internal}),
                         [](const auto& p) { return std::string(p.param.name); });

void run_lines(World& w, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    ASSERT_OK(kScript[i].act(w));
  }
}

// Steps until `next` batches were shown.
void train_to(World& w, uint32_t next) {
  while (w.next < next) {
    ASSERT_OK(micro_step(w));
  }
}

// Does what state() says, up to the point where the failed call can be made again.
void recover(World& w) {
  const uint32_t reached = w.next;
  switch (w.trainer ? w.trainer->state() : TrainState::ready) {
    case TrainState::ready:
    case TrainState::unread:
      return;
    case TrainState::gradients_lost:
      EXPECT_EQ(w.trainer->micro_step(w.lm.data(w.next)).status().code(), Code::bad_argument);
      w.next -= w.trainer->accumulated();
      ASSERT_OK(w.trainer->restart_step());
      break;
    case TrainState::damaged:
      EXPECT_EQ(w.trainer->micro_step(w.lm.data(w.next)).status().code(), Code::bad_argument);
      EXPECT_EQ(w.trainer->evaluate(w.lm.data(w.next)).status().code(), Code::bad_argument);
      EXPECT_EQ(w.trainer->save(w.path + ".refused", {}).code(), Code::bad_argument);
      ASSERT_OK(rollback(w));
      break;
  }
  EXPECT_EQ(w.trainer->state(), TrainState::ready);
  train_to(w, reached);
}

// Runs the script with a failure at call `n` of line `line`. False: the line has fewer calls.
bool run_with_failure(const Setting& setting, size_t line, int n, const Outcome& right) {
  World w(setting);
  run_lines(w, 0, line);
  const auto before = w.bytes();
  const std::string listing = w.lm.model.storages() + w.lm.model.parameters();
  w.fault->arm(n, setting.code);
  const Status failed = kScript[line].act(w);
  const bool fired = w.fault->fired();
  w.fault->disarm();
  if (!fired) {
    EXPECT_OK(failed);
    return false;
  }
  // A call may do without what failed.
  if (!failed.ok()) {
    EXPECT_EQ(failed.code(), setting.code) << failed.message();
    if (w.trainer) {
      (void)w.trainer->memory();
      (void)w.trainer->listing("build");
    }
    if (w.session) {
      (void)w.session->memory();
    }
    if (!w.trainer || w.trainer->state() == TrainState::ready) {
      EXPECT_EQ(w.bytes(), before);
      EXPECT_EQ(w.lm.model.storages() + w.lm.model.parameters(), listing);
    }
    recover(w);
    EXPECT_OK(kScript[line].act(w));
  }
  run_lines(w, line + 1, std::size(kScript));
  EXPECT_EQ(w.seen, right.seen);
  EXPECT_TRUE(w.bytes() == right.bytes) << "the run ends otherwise";
  std::remove(w.path.c_str());
  return true;
}

TEST_P(Failures, TheRunGoesOnBitForBit) {
  const Setting& setting = GetParam();
  const Outcome right = [&] {
    World w(setting);
    run_lines(w, 0, std::size(kScript));
    return outcome_of(w);
  }();
  ASSERT_FALSE(right.seen.empty());
  for (size_t line = 0; line < std::size(kScript); ++line) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(format("call {} of line {} ({})", n, line, kScript[line].name));
      if (!run_with_failure(setting, line, n, right)) {
        EXPECT_GT(n, kScript[line].act == freeze ? 0 : 1) << "a line calls the device";
        break;
      }
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace bowline::test
