// DeviceOptions::memory_budget: the exact size works. One byte less fails with the sizes in the
// message, changes nothing, and if possible fails before the first allocation.
#include <unistd.h>

#include "faults/faulty_device.h"
#include "faults/host_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

std::vector<std::string> names_with_null() {
  std::vector<std::string> out = device_names();
  out.push_back("null");
  return out;
}

class MemoryBudget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { BOWLINE_NEED(why_test_device_missing(GetParam())); }
  static Device open(uint64_t budget = 0) { return open_test_device(GetParam(), 1, budget); }
  static bool computes() { return GetParam() != "null"; }
};
INSTANTIATE_TEST_SUITE_P(Devices, MemoryBudget, testing::ValuesIn(names_with_null()),
                         [](const auto& p) { return test_name(p.param); });

// The state that a refused call must not change.
struct StateBefore {
  StateBefore(const Device& device, const Model& model)
      : counters(device.counters()),
        listings(model.parameters() + model.storages() + model.ties()) {}
  DeviceCounters counters;
  std::string listings;
};

void expect_refused(const Status& status, uint64_t budget, const Device& device, const Model& model,
                    const StateBefore& before, bool early = true) {
  EXPECT_EQ(status.code(), Code::over_budget) << status.message();
  EXPECT_NE(status.message().find(format("its memory budget is {}.", budget)), std::string::npos)
      << status.message();
  const StateBefore after(device, model);
  EXPECT_EQ(after.listings, before.listings);
  EXPECT_EQ(after.counters.live_bytes, before.counters.live_bytes) << "given back";
  if (early) {
    EXPECT_EQ(after.counters.allocations, before.counters.allocations) << "refused before";
    EXPECT_EQ(after.counters.fills, before.counters.fills);
  }
}

MemoryReport session_memory(const Device& device) {
  TinyLm lm = tiny_lm(2);
  EXPECT_OK(lm.model.to(device));
  return must(Session::create(lm.model, device, "loss", lm.dims())).memory();
}

MemoryReport trainer_memory(const Device& device) {
  TinyLm lm = tiny_lm(2);
  EXPECT_OK(lm.model.to(device));
  return must(Trainer::create(lm.model, device, adamw(lm))).memory();
}

TEST_P(MemoryBudget, OfAModel) {
  const MemoryReport m = session_memory(open());
  const uint64_t whole = m.storage_bytes + m.staging_bytes;
  TinyLm lm = tiny_lm(2);
  const Device little = open(whole - 1);
  const StateBefore before(little, lm.model);
  const Status refused = lm.model.to(little);
  expect_refused(refused, whole - 1, little, lm.model, before);
  EXPECT_EQ(
      refused.message(),
      format("{} bytes do not fit on device {}: {} bytes are in use, and its memory budget is {}.\n"
             "- While reserving memory for all storages.",
             m.storage_bytes, GetParam(), m.staging_bytes, whole - 1));
  const Device enough = open(whole);
  EXPECT_OK(lm.model.to(enough));
  EXPECT_EQ(enough.counters().live_bytes, whole);
  // A later allocation is refused, too, and leaves nothing behind.
  const StateBefore full(enough, lm.model);
  expect_refused(lm.model.untie("head.weight").status(), whole, enough, lm.model, full);
  expect_refused(lm.model.clone().status(), whole, enough, lm.model, full);
}

TEST_P(MemoryBudget, OfASession) {
  const MemoryReport m = session_memory(open());
  const uint64_t whole = m.predicted_bytes;
  // The size of recordings is known last.
  for (const uint64_t budget : {whole - 1, whole - m.backend_bytes - 1}) {
    const Device little = open(budget);
    TinyLm lm = tiny_lm(2);
    ASSERT_OK(lm.model.to(little));
    const StateBefore before(little, lm.model);
    expect_refused(Session::create(lm.model, little, "loss", lm.dims()).status(), budget, little,
                   lm.model, before, budget < whole - m.backend_bytes);
  }
  const Device enough = open(whole);
  TinyLm lm = tiny_lm(2);
  ASSERT_OK(lm.model.to(enough));
  Session s = must(Session::create(lm.model, enough, "loss", lm.dims()));
  EXPECT_EQ(enough.counters().live_bytes, whole);
  // The new plan reuses the memory of the old plan.
  ASSERT_OK(lm.model.freeze("norm"));
  ASSERT_OK(s.run(lm.data(0), {}));
  EXPECT_EQ(s.counters().plan_builds, 2u);
  EXPECT_EQ(enough.counters().peak_bytes, whole);
  EXPECT_EQ(s.memory().predicted_bytes, whole);
}

TEST_P(MemoryBudget, OfATrainer) {
  const MemoryReport m = trainer_memory(open());
  const uint64_t whole = m.predicted_bytes;
  const uint64_t model = session_memory(open()).storage_bytes + m.staging_bytes;
  {
    const Device little = open(model);
    TinyLm lm = tiny_lm(2);
    ASSERT_OK(lm.model.to(little));
    const StateBefore before(little, lm.model);
    const Status refused = Trainer::create(lm.model, little, adamw(lm)).status();
    expect_refused(refused, model, little, lm.model, before);
    EXPECT_NE(refused.message().find(format("bytes do not fit on device {}: {} bytes are in use, ",
                                            GetParam(), model)),
              std::string::npos)
        << refused.message();
  }
  // A smaller budget makes the trainer recompute some activations (recompute_test). The size of
  // recordings is known last.
  for (const uint64_t budget : {whole - m.backend_bytes - 1, whole - 1}) {
    SCOPED_TRACE(budget);
    const Device little = open(budget);
    TinyLm lm = tiny_lm(2);
    ASSERT_OK(lm.model.to(little));
    const Trainer t = must(Trainer::create(lm.model, little, adamw(lm)));
    EXPECT_GT(must(t.describe()).recomputed_nodes, 0u);
    EXPECT_LE(little.counters().peak_bytes, budget);
  }
  const Device enough = open(whole);
  TinyLm lm = tiny_lm(2);
  ASSERT_OK(lm.model.to(enough));
  Trainer t = must(Trainer::create(lm.model, enough, adamw(lm)));
  EXPECT_EQ(enough.counters().live_bytes, whole);
  if (computes()) {
    must(train_step(t, lm, 0));
    // The plan with outputs needs additional memory.
    Floats logits(static_cast<size_t>(lm.batch * lm.seq * 29));
    const Dims shape = {lm.batch, lm.seq, 29};
    const Tensor out[] = {tensor("logits", shape, logits)};
    const StateBefore before(enough, lm.model);
    expect_refused(t.evaluate(lm.data(1), out).status(), whole, enough, lm.model, before);
    must(train_step(t, lm, 1));
  }
  EXPECT_EQ(enough.counters().peak_bytes, whole);
}

// A thawed storage needs rows for its training state, which do not fit. The Trainer has no plan
// until the storage is frozen again.
TEST_P(MemoryBudget, OfATrainerThatPlansAgain) {
  const auto freeze = [](Model& model, bool frozen) {
    for (const char* name : {"layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down"}) {
      EXPECT_OK(model.freeze(name, frozen));
    }
  };
  const auto run = [&](const Device& device, bool stumbles) {
    TinyLm lm = tiny_lm(2);
    EXPECT_OK(lm.model.to(device));
    freeze(lm.model, true);
    Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
    const MemoryReport planned = t.memory();
    EXPECT_OK(t.micro_step(lm.data(0)).status());
    if (stumbles) {
      freeze(lm.model, false);
      const StateBefore before(device, lm.model);
      for (int again = 0; again < 2; ++again) {
        const Status refused = t.micro_step(lm.data(1)).status();
        EXPECT_EQ(refused.code(), Code::over_budget) << refused.message();
        EXPECT_EQ(StateBefore(device, lm.model).listings, before.listings);
        EXPECT_EQ(device.counters().allocations, before.counters.allocations);
        EXPECT_EQ(t.state(), TrainState::ready);
        EXPECT_EQ(t.steps(), 1u);
        EXPECT_EQ(t.memory().arena_bytes, 0u);
        EXPECT_EQ(device.counters().live_bytes, planned.storage_bytes + planned.staging_bytes);
      }
      freeze(lm.model, true);
    }
    EXPECT_OK(t.micro_step(lm.data(1)).status());
    return std::pair(planned.predicted_bytes, all_bytes(lm.model));
  };
  const auto [whole, right] = run(open(), false);
  const auto [again, bytes] = run(open(whole), true);
  EXPECT_EQ(again, whole);
  EXPECT_TRUE(bytes == right) << "the run goes on otherwise";
}

// Moments from a checkpoint, for a new Trainer and for a Trainer that resumes.
TEST_P(MemoryBudget, OfMomentsInAFile) {
  const std::string path =
      testing::TempDir() + format("bowline_budget_{}_{}", test_name(GetParam()), getpid());
  const Device free = open();
  TinyLm lm = tiny_lm(2);
  ASSERT_OK(lm.model.to(free));
  MemoryReport whole;
  {
    Trainer t = must(Trainer::create(lm.model, free, adamw(lm)));
    EXPECT_OK(t.micro_step(lm.data(0)).status());
    ASSERT_OK(t.save(path, {}));
    whole = t.memory();
  }
  TrainOptions go_on = adamw(lm);
  go_on.start = TrainStart::from_checkpoint;
  {
    const uint64_t budget = whole.predicted_bytes - whole.backend_bytes - 1;
    Model opened = must(Model::open(path));
    const Device little = open(budget);
    ASSERT_OK(opened.to(little));
    {
      const Trainer less = must(Trainer::create(opened, little, go_on));
      EXPECT_GT(must(less.describe()).recomputed_nodes, 0u);
      EXPECT_LE(little.counters().peak_bytes, budget);
    }
    opened = must(Model::open(path));
    const Device enough = open(whole.predicted_bytes);
    ASSERT_OK(opened.to(enough));
    const Trainer t = must(Trainer::create(opened, enough, go_on));
    EXPECT_EQ(t.steps(), 1u);
    EXPECT_EQ(enough.counters().live_bytes, whole.predicted_bytes);
  }
  // The file also has two moments of a storage that is frozen now. The budget has room for one row.
  const auto frozen = [&](const Device& device, TinyLm& other) {
    EXPECT_OK(other.model.to(device));
    EXPECT_OK(other.model.freeze_storage("head.weight"));
    return must(Trainer::create(other.model, device, adamw(other)));
  };
  TinyLm first = tiny_lm(2);
  const uint64_t row = 29 * 16 * sizeof(float);
  const uint64_t budget = frozen(free, first).memory().predicted_bytes + row;
  const Device little = open(budget);
  TinyLm other = tiny_lm(2);
  Trainer t = frozen(little, other);
  const StateBefore before(little, other.model);
  expect_refused(t.resume(path).status(), budget, little, other.model, before);
  EXPECT_EQ(t.state(), TrainState::ready);
  EXPECT_OK(t.micro_step(other.data(0)).status());
  std::remove(path.c_str());
}

// A session gathers storages that are split over two devices.
TEST_P(MemoryBudget, OfASessionThatGathersShards) {
  const Device first = open_test_device("cpu");
  const auto sharded = [&](const Device& device) {
    TinyLm lm = tiny_lm(2);
    EXPECT_OK(shard(lm.model, std::vector<Device>{first, device}).status());
    return lm;
  };
  const Device free = open();
  const TinyLm lm = sharded(free);
  const MemoryReport m = must(Session::create(lm.model, free, "loss", lm.dims())).memory();
  EXPECT_GT(m.copy_bytes, 0u);
  const Device enough = open(m.predicted_bytes);
  const TinyLm fits = sharded(enough);
  const Session s = must(Session::create(fits.model, enough, "loss", fits.dims()));
  EXPECT_EQ(enough.counters().live_bytes, m.predicted_bytes);
  const uint64_t budget = m.predicted_bytes - m.backend_bytes - 1;
  const Device little = open(budget);
  const TinyLm refused = sharded(little);
  const StateBefore before(little, refused.model);
  expect_refused(Session::create(refused.model, little, "loss", refused.dims()).status(), budget,
                 little, refused.model, before);
}

// The n-th call of a device with the exact budget fails. A leak would make the next call fail.
TEST(MemoryBudgetOfAFaultyDevice, IsWhatItWasAfterEachFailure) {
  const uint64_t whole = trainer_memory(open_test_device("cpu")).predicted_bytes;
  const auto fault = std::make_shared<Fault>();
  const Device device = wrap("faulty", std::make_unique<FaultyDevice>(open_cpu(), fault), whole);
  TinyLm lm = tiny_lm(2);
  for (int n = 1;; ++n) {
    fault->arm(n);
    const Status s = lm.model.to(device);
    const bool fired = fault->fired();
    fault->disarm();
    if (!fired) {
      ASSERT_OK(s);
      break;
    }
    ASSERT_EQ(s.code(), Code::out_of_memory) << s.message();
    ASSERT_EQ(device.counters().live_bytes, 0u);
  }
  const uint64_t model = device.counters().live_bytes;
  const StateBefore before(device, lm.model);
  for (int n = 1;; ++n) {
    fault->arm(n);
    const Result<Trainer> t = Trainer::create(lm.model, device, adamw(lm));
    const bool fired = fault->fired();
    fault->disarm();
    if (!fired) {
      ASSERT_OK(t.status());
      EXPECT_EQ(device.counters().live_bytes, whole);
      break;
    }
    ASSERT_EQ(t.status().code(), Code::out_of_memory) << n << t.status().message();
    ASSERT_EQ(device.counters().live_bytes, model) << n;
    ASSERT_EQ(StateBefore(device, lm.model).listings, before.listings) << n;
  }
  EXPECT_EQ(device.counters().live_bytes, model);
}

// A GPU with 5 MiB of free memory.
class FullDevice : public HostDevice {
 public:
  Result<device::MemoryInfo> memory_info() override {
    return device::MemoryInfo{64 << 20, 5 << 20};
  }
};

TEST(MemoryBudget, AModelThatTheDeviceCannotHoldIsNotBegun) {
  Model m;
  const Dims shape = {1 << 19};
  must(m.parameters("w{}", 3, shape, Init::zeros()));  // 2 MiB each
  ASSERT_OK(m.materialize(1));
  const Device device = Internals::device(open_for_test("full", std::make_unique<FullDevice>()));
  const StateBefore before(device, m);
  const Status s = m.to(device);
  EXPECT_EQ(s.code(), Code::out_of_memory);
  EXPECT_EQ(
      s.message(),
      "6291456 bytes do not fit on device full: 5242880 of its 67108864 bytes are free.\n- While "
      "reserving memory for all storages.");
  EXPECT_EQ(device.counters().allocations, 0u);
  EXPECT_EQ(StateBefore(device, m).listings, before.listings);
}

TEST(MemoryBudget, OfWhatADeviceHoldsForCopies) {
  BOWLINE_NEED(why_missing("vulkan:0"));
  DeviceOptions options;
  setenv("BOWLINE_VULKAN_STAGE_COPIES", "1", 1);
  options.memory_budget = 4 << 20;
  EXPECT_OK(Device::open("vulkan:0", options).status());
  --options.memory_budget;
  const Status s = Device::open("vulkan:0", options).status();
  EXPECT_EQ(s.code(), Code::over_budget);
  EXPECT_EQ(
      s.message(),
      "Device vulkan:0 needs 4194304 bytes for staging buffers, but its memory budget is 4194303.");
  unsetenv("BOWLINE_VULKAN_STAGE_COPIES");
}

}  // namespace
}  // namespace bowline::test
