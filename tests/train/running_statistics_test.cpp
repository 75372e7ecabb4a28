// Running statistics: a training run writes them once per micro-batch. Failed steps, skipped steps
// and evaluations do not change them.
#include <unistd.h>

#include <cmath>
#include <limits>

#include "faults/acting_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using RunningStatistics = OnDevice;
BOWLINE_ON_ALL_DEVICES(RunningStatistics);

struct Settings {
  std::string dtype = "f32";  // the dtype of the input of BatchNorm
  float mean = 1;             // the running mean before the test
  float variance = 90000;
  bool affine = true;  // scale and bias are trainable
};

// loss = mean(y * y), y = BatchNorm(x + table[ids]) + head, with one channel. The table holds
// zeros.
struct Normed {
  explicit Normed(const Settings& settings = {}) {
    const auto one = [&](const char* name, StorageRole role = StorageRole::weight) {
      return must(model.parameter(name, {1}, Init::ones(), role));
    };
    const Parameter scale = one("scale"), bias = one("bias"), head = one("head");
    const Parameter mean = one("mean", StorageRole::running_statistic);
    const Parameter variance = one("variance", StorageRole::running_statistic);
    const Parameter table = must(model.parameter("table", {4, 1}, Init::zeros()));
    EXPECT_OK(model.freeze("table"));
    if (!settings.affine) {
      EXPECT_OK(model.freeze("scale"));
      EXPECT_OK(model.freeze("bias"));
    }
    GraphBuilder g(model, "loss");
    const auto cast = [&](Value v, const std::string& to) {
      return settings.dtype == "f32" ? v : g.op("Cast", {v}, {{"to", to.c_str()}});
    };
    const auto low = [&](Value v) { return cast(v, settings.dtype); };
    const Value rows = g.op("Embedding", {g.parameter(table), g.input("ids", DType::i32, {"n"})});
    const Value sum = g.op("Add", {g.input("x", DType::f32, {"n", 1}), rows});
    Value y = g.op("BatchNorm",
                   {low(sum), low(g.parameter(scale)), low(g.parameter(bias)), g.parameter(mean),
                    g.parameter(variance)},
                   {{"momentum", 0.1}, {"eps", 1e-5}});
    y = g.op("Add", {cast(y, "f32"), g.parameter(head)});
    g.output("loss", g.op("ReduceMean", {g.op("Mul", {y, y})}));
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(1));
    EXPECT_OK(set(model, "scale", {1}, {0.5f}));
    EXPECT_OK(set(model, "bias", {1}, {0.25f}));
    EXPECT_OK(set(model, "mean", {1}, {settings.mean}));
    EXPECT_OK(set(model, "variance", {1}, {settings.variance}));
  }

  // Three values with the mean `mean` and the unbiased variance 90000.
  static Floats around(float mean) { return {mean - 300, mean, mean + 300}; }
  std::vector<Tensor> batch(Floats numbers, int32_t id = 0) {
    x = std::move(numbers);
    ids.assign(x.size(), id);
    const auto n = static_cast<int64_t>(x.size());
    return {tensor("x", {n, 1}, x), tensor("ids", {n}, ids)};
  }
  Floats statistics() const { return {values(model, "mean")[0], values(model, "variance")[0]}; }
  static TrainOptions options(int64_t n) {
    TrainOptions o = plain_sgd(0.001f);
    o.dims = {{"n", n}};
    o.precision.loss_scale = 1;  // applies every step, with f16, too
    return o;
  }

  Model model;
  Floats x;
  std::vector<int32_t> ids;
};

// The running mean is 1 and the mean of the batch 1.001. Statistics are f32 for every dtype of the
// input: half precision would stay at 1. The cpu takes a thousand steps.
TEST_P(RunningStatistics, MeetTheBatch) {
  const int steps = GetParam() == "cpu" ? 1000 : 20;
  Floats numbers(125, 1.0f);
  std::fill_n(numbers.begin(), 16, 1.0078125f);  // exact in 16 bits
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const bool affine : {true, false}) {
      Normed m({.dtype = dtype, .affine = affine});
      ASSERT_OK(m.model.to(device_));
      Trainer t = must(Trainer::create(m.model, device_, Normed::options(125)));
      for (int i = 0; i < steps; ++i) {
        must(t.micro_step(m.batch(numbers)));
      }
      EXPECT_NEAR(m.statistics()[0], 1.001 - 0.001 * std::pow(0.9, steps), 1e-6) << dtype;
      // An evaluation does not change the statistics.
      const Floats before = m.statistics();
      must(t.evaluate(m.batch(numbers)));
      EXPECT_EQ(m.statistics(), before) << dtype;
    }
  }
}

TEST_P(RunningStatistics, KeepAVarianceThatHalfPrecisionDoesNotHold) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const bool affine : {true, false}) {
      Normed m({.dtype = dtype, .mean = 0, .affine = affine});
      ASSERT_OK(m.model.to(device_));
      Trainer t = must(Trainer::create(m.model, device_, Normed::options(3)));
      for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(must(t.micro_step(m.batch(Normed::around(0))))->skipped);
        must(t.evaluate(m.batch({1, 2, 5})));
        EXPECT_EQ(m.statistics(), Floats({0, 90000})) << dtype;
      }
    }
  }
}

TEST_P(RunningStatistics, AnEvaluationReadsThem) {
  Normed m({.mean = 2, .variance = 4});
  ASSERT_OK(m.model.to(device_));
  Trainer t = must(Trainer::create(m.model, device_, Normed::options(2)));
  // y = (x - 2) / 2 * 0.5 + 0.25 + 1
  EXPECT_NEAR(must(t.evaluate(m.batch({2, 6}))), (1.25 * 1.25 + 2.25 * 2.25) / 2, 1e-4);
}

TEST_P(RunningStatistics, EveryMicroBatchMovesThemOnceInOrder) {
  Normed m;
  ASSERT_OK(m.model.to(device_));
  TrainOptions o = Normed::options(3);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(m.model, device_, o));
  must(t.micro_step(m.batch(Normed::around(11))));
  EXPECT_NEAR(m.statistics()[0], 2, 1e-5);
  must(t.micro_step(m.batch(Normed::around(-8))));
  EXPECT_NEAR(m.statistics()[0], 1, 1e-5);
  EXPECT_EQ(m.statistics()[1], 90000);
}

TEST_P(RunningStatistics, AStepThatIsNotAppliedLeavesNoTrace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const OnNonFinite policy : {OnNonFinite::skip, OnNonFinite::stop}) {
    for (const int bad : {0, 1}) {
      Normed m;
      ASSERT_OK(m.model.to(device_));
      TrainOptions o = Normed::options(3);
      o.accumulation = 2;
      o.on_nonfinite = policy;
      Trainer t = must(Trainer::create(m.model, device_, o));
      must(t.micro_step(m.batch(Normed::around(11))));
      must(t.micro_step(m.batch(Normed::around(11))));
      const Floats before = m.statistics();
      for (int i = 0; i < 2; ++i) {
        Floats numbers = Normed::around(11);
        numbers[1] = i == bad ? nan : numbers[1];
        const auto r = t.micro_step(m.batch(numbers));
        if (policy == OnNonFinite::stop && i == bad) {
          EXPECT_EQ(r.status().code(), Code::non_finite);
          // The message must not blame the statistics.
          EXPECT_EQ(r.status().message().find("\"mean\""), std::string::npos);
          break;
        }
        ASSERT_OK(r.status());
        EXPECT_TRUE(i == 0 || r.value()->skipped);
      }
      EXPECT_EQ(m.statistics(), before);
      must(t.micro_step(m.batch(Normed::around(11))));
      EXPECT_GT(m.statistics()[0], before[0]);
    }
  }
}

TEST_P(RunningStatistics, ABadIndexLeavesNoTrace) {
  Normed m;
  ASSERT_OK(m.model.to(device_));
  TrainOptions o = Normed::options(3);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(m.model, device_, o));
  const Floats before = m.statistics();
  for (const int good : {0, 1}) {
    if (good != 0) {
      must(t.micro_step(m.batch(Normed::around(11))));
    }
    EXPECT_EQ(t.micro_step(m.batch(Normed::around(11), 4)).status().code(),
              Code::index_out_of_range);
    EXPECT_EQ(m.statistics(), before);
    EXPECT_EQ(t.accumulated(), 0u);
  }
  must(t.micro_step(m.batch(Normed::around(11))));
  ASSERT_OK(t.restart_step());
  EXPECT_EQ(m.statistics(), before);
}

TEST_P(RunningStatistics, ComeBackWithSnapshotsAndCheckpoints) {
  const std::string path =
      testing::TempDir() + "bowline_statistics_" + std::to_string(getpid()) + ".bowline";
  Normed m;
  ASSERT_OK(m.model.to(device_));
  Trainer t = must(Trainer::create(m.model, device_, Normed::options(3)));
  must(t.micro_step(m.batch(Normed::around(11))));
  ASSERT_OK(t.snapshot());
  ASSERT_OK(t.save(path, {}));
  const Floats begin = m.statistics();
  must(t.micro_step(m.batch({1, 2, 6})));
  const Floats after = m.statistics();
  EXPECT_NE(after, begin);
  ASSERT_OK(t.rollback());
  EXPECT_EQ(m.statistics(), begin);
  must(t.micro_step(m.batch({1, 2, 6})));
  EXPECT_EQ(m.statistics(), after);
  ASSERT_OK(t.resume(path).status());
  EXPECT_EQ(m.statistics(), begin);
  must(t.micro_step(m.batch({1, 2, 6})));
  EXPECT_EQ(m.statistics(), after);
  unlink(path.c_str());
}

// A request after record n of the second micro-batch, which has updated the statistics.
TEST(CancelledStep, PutsTheStatisticsBack) {
  for (const GradientSum sum : {GradientSum::in_place, GradientSum::by_micro_batch}) {
    AtRecord at;
    const Device device = wrap("acting", std::make_unique<ActingDevice>(at));
    Normed m;
    ASSERT_OK(m.model.to(device));
    TrainOptions o = Normed::options(3);
    o.accumulation = 2;
    o.gradient_sum = sum;
    Trainer t = must(Trainer::create(m.model, device, o));
    const Floats before = m.statistics();
    at.act = [&] { t.cancel(); };
    must(t.micro_step(m.batch(Normed::around(10))));
    EXPECT_NE(m.statistics(), before);
    at.left = 6;
    EXPECT_EQ(t.micro_step(m.batch(Normed::around(20))).status().code(), Code::cancelled);
    EXPECT_EQ(t.accumulated(), 0u);
    EXPECT_EQ(m.statistics(), before);
  }
}

}  // namespace
}  // namespace bowline::test
