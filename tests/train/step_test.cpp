// One or many training steps: counters, determinism, accumulation, clipping, failures, and
// checkpoints.
#include <cmath>
#include <filesystem>
#include <limits>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

using Training = OnDevice;
BOWLINE_ON_ALL_DEVICES(Training);

TEST_P(Training, LossFallsAndCountersStay) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  const float first = must(train_step(t, lm, 0)).loss;
  device_.reset_counters();
  float last = 0;
  for (int i = 1; i < 100; ++i) {
    last = must(train_step(t, lm, 0)).loss;
  }
  EXPECT_LT(last, 0.5f * first);
  const DeviceCounters d = device_.counters();
  EXPECT_EQ(d.allocations, 0u);
  EXPECT_EQ(d.records, 0u);
  EXPECT_EQ(d.submits, 99u);
  // As the build listing shows: two inputs and the per-step scalars in, the loss and the per-step
  // scalars out.
  EXPECT_EQ(d.copies_in, 3u * 99u);
  EXPECT_EQ(d.copies_out, 2u * 99u);
  EXPECT_EQ(d.copies + d.fills, 0u);
  const Counters c = t.counters();
  EXPECT_EQ(c.plan_builds, 1u);
  EXPECT_EQ(c.recordings, 3u);
  EXPECT_EQ(c.submits, 100u);
}

TEST_P(Training, PredictedPeakIsCounted) {
  device_.reset_counters();
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  must(train_step(t, lm, 0));
  const auto predicted = static_cast<double>(t.memory().predicted_bytes);
  const auto counted = static_cast<double>(device_.counters().peak_bytes);
  EXPECT_LE(counted, predicted);
  EXPECT_GE(counted, 0.98 * predicted);
}

TEST_P(Training, SameBitsTwice) {
  const auto untrained = all_bytes(tiny_lm().model);
  const auto run = [&] {
    const Device fresh = open_test_device(GetParam());
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(fresh));
    Trainer t = must(Trainer::create(lm.model, fresh, adamw(lm)));
    for (uint32_t i = 0; i < 5; ++i) {
      must(train_step(t, lm, i));
    }
    return all_bytes(lm.model);
  };
  const auto once = run();
  EXPECT_EQ(once, run());
  EXPECT_FALSE(std::ranges::equal(untrained, std::span(once).first(untrained.size())));
}

TEST_P(Training, EveryBitOfTheSeedCounts) {
  const auto loss = [&](uint64_t seed) {
    TinyLm lm = tiny_lm(2, 0.5f);
    EXPECT_OK(lm.model.to(device_));
    TrainOptions o = adamw(lm);
    o.seed = seed;
    Trainer t = must(Trainer::create(lm.model, device_, o));
    return must(train_step(t, lm, 0)).loss;
  };
  const float first = loss(5);
  EXPECT_EQ(loss(5), first);
  EXPECT_NE(loss(4), first);
  EXPECT_NE(loss(5 | uint64_t{1} << 32), first);
  EXPECT_NE(loss(5 | uint64_t{1} << 63), first);
}

TEST_P(Training, AccumulationIsTheMeanOfTheBatches) {
  // Two micro-batches equal the mean of two losses, by the norm of the gradient.
  TrainOptions o;
  TinyLm lm = tiny_lm(2, 0);
  ASSERT_OK(lm.model.to(device_));
  o = adamw(lm);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(lm.model, device_, o));
  const StepReport twice = must(train_step(t, lm, 3, 2));

  TinyLm big = tiny_lm(2, 0);
  big.batch = 4;
  ASSERT_OK(big.model.to(device_));
  o = adamw(big);
  Trainer whole = must(Trainer::create(big.model, device_, o));
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
  for (const uint32_t i : {3u, 4u}) {
    lm.data(i);
    tokens.insert(tokens.end(), lm.tokens.begin(), lm.tokens.end());
    labels.insert(labels.end(), lm.labels.begin(), lm.labels.end());
  }
  big.data(0);
  big.tokens = tokens;
  big.labels = labels;
  const std::vector<Tensor> batch = {tensor("tokens", big.shape, big.tokens),
                                     tensor("labels", big.shape, big.labels)};
  const std::span<const Tensor> batches[] = {batch};
  const StepReport once = must(whole.step(batches));
  EXPECT_GT(once.loss, 1);
  EXPECT_GT(once.grad_norm, 0);
  EXPECT_NEAR(twice.loss, once.loss, 1e-5f * once.loss);
  EXPECT_NEAR(twice.grad_norm, once.grad_norm, 1e-4f * once.grad_norm);
}

TEST_P(Training, AWholeStepGoesOnAfterItsMicroBatches) {
  const auto trained = [&](uint32_t before) {
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(device_));
    TrainOptions o = adamw(lm);
    o.accumulation = 3;
    Trainer t = must(Trainer::create(lm.model, device_, o));
    std::vector<TinyLm> copies;
    copies.reserve(3);  // batches point into them
    std::vector<std::vector<Tensor>> data;
    for (uint32_t i = 0; i < 3; ++i) {
      data.push_back(copies.emplace_back(tiny_lm()).data(i));
    }
    for (uint32_t i = 0; i < before; ++i) {
      EXPECT_FALSE(must(t.micro_step(data[i])).has_value());
    }
    EXPECT_EQ(t.accumulated(), before);
    const std::span<const Tensor> batches[] = {data[0], data[1], data[2]};
    must(t.step(batches));
    EXPECT_EQ(t.accumulated(), 0u);
    return values(lm.model, "embed.weight");
  };
  const Floats whole = trained(0);
  EXPECT_EQ(trained(1), whole);
  EXPECT_EQ(trained(2), whole);
}

TEST_P(Training, ABadTokenLeavesTheWeights) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  must(train_step(t, lm, 0));
  for (const bool label : {false, true}) {
    const Floats before = values(lm.model, "embed.weight");
    lm.data(1);
    (label ? lm.labels : lm.tokens)[3] = 29;
    const std::vector<Tensor> batch = {tensor("tokens", lm.shape, lm.tokens),
                                       tensor("labels", lm.shape, lm.labels)};
    const auto r = t.micro_step(batch);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), Code::index_out_of_range);
    EXPECT_NE(r.status().message().find("29"), std::string::npos) << r.status().message();
    EXPECT_NE(r.status().message().find(label ? "CrossEntropy" : "Embedding"), std::string::npos)
        << r.status().message();
    EXPECT_EQ(values(lm.model, "embed.weight"), before);
    must(train_step(t, lm, 2));
    EXPECT_NE(values(lm.model, "embed.weight"), before);
  }
}

TEST_P(Training, ANonFiniteStepIsSkippedAndReported) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  must(train_step(t, lm, 0));
  Floats norm = values(lm.model, "norm");
  norm[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_OK(set(lm.model, "norm", {16}, norm));
  const Floats before = values(lm.model, "embed.weight");
  const StepReport r = must(train_step(t, lm, 1));
  EXPECT_TRUE(r.skipped);
  EXPECT_TRUE(std::isnan(r.loss));
  EXPECT_EQ(values(lm.model, "embed.weight"), before);
}

TEST_P(Training, ASkippedStepLeavesNoTrace) {
  // A skipped step changes neither the moments nor their bias correction.
  const auto trained = [&](bool skips) {
    TinyLm lm = tiny_lm(2, 0);
    EXPECT_OK(lm.model.to(device_));
    Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
    must(train_step(t, lm, 0));
    if (skips) {
      const Floats norm = values(lm.model, "norm");
      Floats broken = norm;
      broken[0] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_OK(set(lm.model, "norm", {16}, broken));
      EXPECT_TRUE(must(train_step(t, lm, 1)).skipped);
      EXPECT_OK(set(lm.model, "norm", {16}, norm));
    }
    EXPECT_FALSE(must(train_step(t, lm, 2)).skipped);
    return values(lm.model, "embed.weight");
  };
  EXPECT_EQ(trained(true), trained(false));
}

TEST_P(Training, ARefusedBatchLeavesNoTrace) {
  // The step restarts with the same dropout masks.
  const auto trained = [&](bool refuses) {
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(device_));
    TrainOptions o = adamw(lm);
    o.accumulation = 2;
    Trainer t = must(Trainer::create(lm.model, device_, o));
    must(train_step(t, lm, 0, 2));
    if (refuses) {
      must(t.micro_step(lm.data(2)));
      lm.data(3);
      lm.tokens[3] = 29;
      const std::vector<Tensor> batch = {tensor("tokens", lm.shape, lm.tokens),
                                         tensor("labels", lm.shape, lm.labels)};
      EXPECT_EQ(t.micro_step(batch).status().code(), Code::index_out_of_range);
    }
    must(train_step(t, lm, 2, 2));
    return values(lm.model, "embed.weight");
  };
  EXPECT_EQ(trained(true), trained(false));
}

TEST_P(Training, CancelLeavesTheWeights) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  must(train_step(t, lm, 0));
  const auto before = all_bytes(lm.model);
  t.cancel();
  const auto r = t.micro_step(lm.data(1));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), Code::cancelled);
  EXPECT_EQ(all_bytes(lm.model), before);
  EXPECT_TRUE(train_step(t, lm, 1).ok());
}

TEST_P(Training, RollbackReturnsToTheSnapshot) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  must(train_step(t, lm, 0));
  ASSERT_OK(t.snapshot());
  const float a = must(train_step(t, lm, 1)).loss;
  const float b = must(train_step(t, lm, 2)).loss;
  ASSERT_OK(t.rollback());
  EXPECT_EQ(t.steps(), 1u);
  EXPECT_EQ(must(train_step(t, lm, 1)).loss, a);
  EXPECT_EQ(must(train_step(t, lm, 2)).loss, b);
}

TEST_P(Training, ACheckpointContinuesBitForBit) {
  const std::string path = testing::TempDir() + test_name(GetParam()) + "_checkpoint.bowline";
  TrainOptions o;
  // Without and with an interruption inside an accumulation.
  const auto whole = [&] {
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(device_));
    o = adamw(lm);
    o.accumulation = 3;
    Trainer t = must(Trainer::create(lm.model, device_, o));
    for (uint32_t i = 0; i < 12; ++i) {
      if (i == 7) {
        Progress p;
        p.data_cursor = i;
        EXPECT_OK(t.save(path, p));
      }
      must(t.micro_step(lm.data(i)));
    }
    return all_bytes(lm.model);
  }();
  TinyLm lm = tiny_lm(3, 0.1f, 99);
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, o));
  const Progress p = must(t.resume(path));
  EXPECT_EQ(p.step, 2u);
  EXPECT_EQ(p.micro_step, 1u);
  for (auto i = static_cast<uint32_t>(p.data_cursor); i < 12; ++i) {
    must(t.micro_step(lm.data(i)));
  }
  EXPECT_EQ(all_bytes(lm.model), whole);
  std::filesystem::remove(path);
}

TEST_P(Training, ACheckpointOfAnotherModelIsRefused) {
  const std::string path = testing::TempDir() + test_name(GetParam()) + "_other.bowline";
  TinyLm a = tiny_lm(2);
  ASSERT_OK(a.model.to(device_));
  Trainer ta = must(Trainer::create(a.model, device_, adamw(a)));
  ASSERT_OK(ta.save(path, {}));
  TinyLm b = tiny_lm(3);
  ASSERT_OK(b.model.to(device_));
  Trainer tb = must(Trainer::create(b.model, device_, adamw(b)));
  const auto before = all_bytes(b.model);
  const auto r = tb.resume(path);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), Code::bad_file);
  EXPECT_NE(r.status().message().find("another model"), std::string::npos);
  EXPECT_EQ(all_bytes(b.model), before);
  std::filesystem::remove(path);
}

// A trainer cannot use the quantized values of another encoding, and a plain storage cannot use
// any.
TEST_P(Training, ACheckpointOfAnotherEncodingIsRefused) {
  const std::string path = testing::TempDir() + test_name(GetParam()) + "_encoding.bowline";
  const auto made = [&](const char* encoding) {
    TinyLm lm = tiny_lm(2);
    for (const char* name : {"layers.0.down", "layers.1.down"}) {
      EXPECT_OK(lm.model.freeze(name));
    }
    if (encoding != nullptr) {
      EXPECT_OK(quantize(lm.model, encoding, "layers.*.down").status());
    }
    EXPECT_OK(lm.model.to(device_));
    return lm;
  };
  TinyLm a = made("int8");
  Trainer ta = must(Trainer::create(a.model, device_, adamw(a)));
  ASSERT_OK(ta.save(path, {}));
  for (const char* other : {static_cast<const char*>(nullptr), "int4"}) {
    TinyLm b = made(other);
    Trainer tb = must(Trainer::create(b.model, device_, adamw(b)));
    const auto before = all_bytes(b.model);
    const auto r = tb.resume(path);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.status().message().find("encoding"), std::string::npos) << r.status().message();
    EXPECT_EQ(all_bytes(b.model), before);
  }
  TinyLm same = made("int8");
  Trainer t = must(Trainer::create(same.model, device_, adamw(same)));
  EXPECT_OK(t.resume(path).status());
  std::filesystem::remove(path);
}

TEST(Training, OneAndTwoThreadsGiveTheSameBits) {
  const auto run = [](int threads) {
    const Device cpu = open_test_device("cpu", threads);
    TinyLm lm = tiny_lm();
    lm.batch = 5;
    lm.seq = 37;
    EXPECT_OK(lm.model.to(cpu));
    Trainer t = must(Trainer::create(lm.model, cpu, adamw(lm)));
    for (uint32_t i = 0; i < 3; ++i) {
      must(train_step(t, lm, i));
    }
    return all_bytes(lm.model);
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  const auto untrained = all_bytes(tiny_lm().model);
  EXPECT_FALSE(std::ranges::equal(untrained, std::span(one).first(untrained.size())));
}

TEST(Training, DevicesAgreeOver20Steps) {
  std::vector<Floats> curves;
  for (const std::string& name : usable_device_names()) {
    const Device device = open_test_device(name);
    TinyLm lm = tiny_lm();
    ASSERT_OK(lm.model.to(device));
    Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
    Floats& curve = curves.emplace_back();
    for (uint32_t i = 0; i < 20; ++i) {
      curve.push_back(must(train_step(t, lm, i)).loss);
      EXPECT_GT(curve[i], 1);
      EXPECT_NEAR(curve[i], curves[0][i], 1e-3f * curves[0][i]) << name << ", step " << i;
    }
  }
}

TEST(Training, AStorageWithoutGradientIsNamed) {
  Model m;
  const Dims one = {1};
  const Parameter used = must(m.parameter("used", one, Init::ones()));
  must(m.parameter("forgotten", one, Init::ones()));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {1});
  g.output("loss", g.op("ReduceSum", {g.op("Mul", {x, g.parameter(used)})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(m.to(cpu));
  const auto t = Trainer::create(m, cpu, plain_sgd(0.1f));
  ASSERT_FALSE(t.ok());
  EXPECT_NE(t.status().message().find("forgotten"), std::string::npos) << t.status().message();
  ASSERT_OK(m.freeze("forgotten"));
  EXPECT_OK(Trainer::create(m, cpu, plain_sgd(0.1f)).status());
}

TEST(Training, DropoutIsOffInEvaluation) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm(2, 0.5f);
  ASSERT_OK(lm.model.to(cpu));
  TrainOptions o = adamw(lm);
  o.schedule.learning_rate = 0;
  o.optimizer.settings["weight_decay"] = 0;
  Trainer t = must(Trainer::create(lm.model, cpu, o));
  const float off = must(t.evaluate(lm.data(0)));
  EXPECT_EQ(off, must(t.evaluate(lm.data(0))));
  const float a = must(train_step(t, lm, 0)).loss;
  const float b = must(train_step(t, lm, 0)).loss;
  EXPECT_NE(a, b) << "each micro-batch has a mask of its own";
  EXPECT_NE(a, off);
}

TEST(Schedule, WarmUpThenDecay) {
  Schedule s;
  s.learning_rate = 1;
  s.warmup_steps = 10;
  s.total_steps = 110;
  EXPECT_FLOAT_EQ(learning_rate_at(s, 5), 0.5f);
  EXPECT_FLOAT_EQ(learning_rate_at(s, 60), 1.0f);
  s.kind = Schedule::Kind::linear;
  EXPECT_FLOAT_EQ(learning_rate_at(s, 60), 0.55f);
  EXPECT_FLOAT_EQ(learning_rate_at(s, 110), 0.1f);
  s.kind = Schedule::Kind::cosine;
  EXPECT_FLOAT_EQ(learning_rate_at(s, 60), 0.55f);
  EXPECT_FLOAT_EQ(learning_rate_at(s, 110), 0.1f);
  EXPECT_FLOAT_EQ(learning_rate_at(s, 500), 0.1f);
}

}  // namespace
}  // namespace bowline::test
