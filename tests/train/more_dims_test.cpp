// TrainOptions::more_dims: one training with batches of several shapes gives the same bits as
// trainings with one shape each.
#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

namespace fs = std::filesystem;

constexpr int kLong = 12, kShort = 5;

class MoreDims : public OnDevice {
 protected:
  TinyLm placed() {
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(device_));
    return lm;
  }
  static TrainOptions one(const TinyLm& lm, int seq) {
    TrainOptions o = adamw(lm);
    o.dims = {{"batch", lm.batch}, {"seq", seq}};
    return o;
  }
  static TrainOptions both(const TinyLm& lm) {
    TrainOptions o = one(lm, kLong);
    o.more_dims = {one(lm, kShort).dims};
    return o;
  }
  static StepReport step(Trainer& t, TinyLm& lm, int seq, uint32_t number) {
    lm.seq = seq;
    return must(train_step(t, lm, number));
  }
  std::string file(const char* name) const {
    return (fs::temp_directory_path() / ("more_dims_" + device_.info().name + name)).string();
  }
};
BOWLINE_ON_ALL_DEVICES(MoreDims);

TEST_P(MoreDims, GiveTheBitsOfEach) {
  for (const int seq : {kLong, kShort}) {
    TinyLm a = placed();
    TinyLm b = placed();
    Trainer several = must(Trainer::create(a.model, device_, both(a)));
    Trainer single = must(Trainer::create(b.model, device_, one(b, seq)));
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(step(several, a, seq, i).loss, step(single, b, seq, i).loss);
    }
    EXPECT_EQ(must(several.evaluate(a.data(7))), must(single.evaluate(b.data(7))));
    EXPECT_EQ(all_bytes(a.model), all_bytes(b.model));
  }
}

// The reference uses a new trainer for each step. The trainer has only the shape of this step and
// resumes from the file of the step before.
TEST_P(MoreDims, MayChangeFromStepToStep) {
  TinyLm a = placed();
  Trainer several = must(Trainer::create(a.model, device_, both(a)));
  const std::string path = file("_reference.bowline");
  TinyLm b = placed();
  for (uint32_t i = 0; i < 5; ++i) {
    const int seq = i % 2 == 0 ? kLong : kShort;
    TrainOptions options = one(b, seq);
    if (i > 0) {
      b.model = must(Model::open(path));
      ASSERT_OK(b.model.to(device_));
      options.start = TrainStart::from_checkpoint;
    }
    Trainer single = must(Trainer::create(b.model, device_, options));
    const StepReport expected = step(single, b, seq, i);
    ASSERT_OK(single.save(path, {}));
    const StepReport report = step(several, a, seq, i);
    EXPECT_EQ(report.loss, expected.loss) << i;
    EXPECT_EQ(report.grad_norm, expected.grad_norm) << i;
  }
  fs::remove(path);
}

TEST_P(MoreDims, AddUpInOneStep) {
  TinyLm lm = tiny_lm(3, 0.0f);  // without dropout the losses equal those of evaluate()
  ASSERT_OK(lm.model.to(device_));
  TrainOptions options = both(lm);
  options.accumulation = 2;
  Trainer t = must(Trainer::create(lm.model, device_, options));
  lm.seq = kShort;
  const float first = must(t.evaluate(lm.data(0)));
  EXPECT_FALSE(must(t.micro_step(lm.data(0))).has_value());
  lm.seq = kLong;
  const float second = must(t.evaluate(lm.data(1)));
  const StepReport report = must(t.micro_step(lm.data(1))).value();
  EXPECT_NE(first, second);
  // The mean over all tokens, not the mean of the two means.
  EXPECT_EQ(report.loss, static_cast<float>((double{first} * kShort + double{second} * kLong) /
                                            (kShort + kLong)));
}

TEST_P(MoreDims, ShareOneArena) {
  device_.reset_counters();
  TinyLm a = placed();
  Trainer t = must(Trainer::create(a.model, device_, both(a)));
  step(t, a, kLong, 0);
  step(t, a, kShort, 0);
  const MemoryReport several = t.memory();
  EXPECT_LE(device_.counters().peak_bytes, several.predicted_bytes);
  EXPECT_GE(static_cast<double>(device_.counters().peak_bytes),
            0.98 * static_cast<double>(several.predicted_bytes));
  device_.reset_counters();
  for (uint32_t i = 0; i < 10; ++i) {
    step(t, a, i % 3 == 0 ? kLong : kShort, i);
  }
  EXPECT_EQ(device_.counters().allocations, 0u);
  EXPECT_EQ(device_.counters().records, 0u);
  EXPECT_EQ(t.counters().plan_builds, 2u);
  EXPECT_EQ(must(t.describe()).segments.size(), 6u);
  TinyLm b = placed();
  const MemoryReport single = must(Trainer::create(b.model, device_, one(b, kLong))).memory();
  EXPECT_EQ(several.arena_bytes, single.arena_bytes);
  EXPECT_EQ(several.storage_bytes, single.storage_bytes);
}

TEST_P(MoreDims, GoOnFromACheckpoint) {
  const std::string path = file("_resume.bowline");
  TinyLm a = placed();
  Trainer whole = must(Trainer::create(a.model, device_, both(a)));
  step(whole, a, kShort, 0);
  ASSERT_OK(whole.save(path, {}));
  step(whole, a, kLong, 1);
  step(whole, a, kShort, 2);
  TinyLm b = placed();
  Trainer resumed = must(Trainer::create(b.model, device_, both(b)));
  must(resumed.resume(path));
  step(resumed, b, kLong, 1);
  step(resumed, b, kShort, 2);
  EXPECT_EQ(all_bytes(a.model), all_bytes(b.model));
  TinyLm c = placed();
  Trainer other = must(Trainer::create(c.model, device_, one(c, kLong)));
  const Result<Progress> refused = other.resume(path);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("batch=2 seq=12; batch=2 seq=5"), std::string::npos)
      << refused.status().message();
  fs::remove(path);
}

TEST_P(MoreDims, AreToldApartByShapes) {
  TinyLm a = placed();
  TrainOptions same = both(a);
  same.more_dims.push_back(same.dims);
  const Result<Trainer> twice = Trainer::create(a.model, device_, same);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.status().code(), Code::bad_argument);
  EXPECT_NE(twice.status().message().find("give batches of the same shapes"), std::string::npos);
  Trainer t = must(Trainer::create(a.model, device_, both(a)));
  a.seq = 6;
  const auto refused = t.micro_step(a.data(0));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "The shapes of the batch fit none of the dims: batch=2 seq=12; batch=2 seq=5.");
  EXPECT_EQ(t.state(), TrainState::ready);
  EXPECT_FALSE(t.evaluate(a.data(0)).ok());
  step(t, a, kShort, 0);
}

}  // namespace
}  // namespace bowline::test
