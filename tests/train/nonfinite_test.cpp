// Losses, norms and weights that are not finite: steps are skipped, counted, named and rolled back.
// Options that would cause them are refused.
#include <cmath>
#include <limits>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

using NonFinite = OnDevice;
BOWLINE_ON_ALL_DEVICES(NonFinite);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The loss is infinite if the label is 1, but the gradient is always finite.
Seed infinite_loss() {
  Seed s;
  s.shape = {1};
  s.ids = {1};
  const Dims shape = {1, 2};
  const Parameter w = must(s.model.parameter("w", shape, Init::zeros()));
  GraphBuilder g(s.model, "loss");
  const Value label = g.input("x", DType::i32, {1});
  g.output("loss", g.op("CrossEntropy", {g.parameter(w), label}));
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(1));
  EXPECT_OK(set(s.model, "w", shape, {0, -kInfinity}));
  return s;
}

TEST_P(NonFinite, AnInfiniteLossIsSkippedThoughTheNormIsFinite) {
  Seed s = infinite_loss();
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.1f);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(s.model, device_, o));
  // The infinite batch is first: the last micro-batch alone would not show it.
  must(t.micro_step(s.batch()));
  s.ids = {0};
  const StepReport r = *must(t.micro_step(s.batch()));
  EXPECT_EQ(r.loss, kInfinity);
  EXPECT_TRUE(std::isfinite(r.grad_norm));
  EXPECT_TRUE(r.skipped);
  EXPECT_EQ(r.nonfinite_in_row, 1u);
  EXPECT_EQ(values(s.model, "w"), Floats({0, -kInfinity}));
  // The infinite batch is last.
  must(t.micro_step(s.batch()));
  s.ids = {1};
  EXPECT_TRUE(must(t.micro_step(s.batch()))->skipped);
  EXPECT_EQ(values(s.model, "w"), Floats({0, -kInfinity}));
}

TEST_P(NonFinite, AnUpdateThatMakesInfiniteWeightsIsReported) {
  for (const OptimizerInfo& info : optimizers()) {
    SCOPED_TRACE(std::string(info.name));
    if (info.name == "adagrad") {
      continue;  // no Adagrad step exceeds the learning rate
    }
    Seed s = scalar2(1);
    ASSERT_OK(s.model.to(device_));
    TrainOptions o = plain_sgd(3e38f);
    o.optimizer = {std::string(info.name), {{"weight_decay", 5}, {"decay_all", 1}}};
    Trainer t = must(Trainer::create(s.model, device_, o));
    const StepReport r = step(t, s);
    EXPECT_FALSE(r.skipped);
    EXPECT_TRUE(r.weights_non_finite);
    EXPECT_FALSE(std::isfinite(values(s.model, "a")[0]));
    Seed fine = scalar2(1);
    ASSERT_OK(fine.model.to(device_));
    o.schedule.learning_rate = 0.1f;
    Trainer u = must(Trainer::create(fine.model, device_, o));
    EXPECT_FALSE(step(u, fine).weights_non_finite);
  }
}

TEST(NonFinite, FiveInARowEndTheRun) {
  const Device cpu = open_test_device("cpu");
  Seed s = scalar2(1);
  ASSERT_OK(s.model.to(cpu));
  Trainer t = must(Trainer::create(s.model, cpu, plain_sgd(0.1f)));
  const auto run = [&](float x) {
    s.x = {x};
    return t.micro_step(s.batch());
  };
  for (uint64_t i = 1; i <= 4; ++i) {
    const StepReport r = *must(run(kInfinity));
    EXPECT_EQ(r.nonfinite_in_row, i);
    EXPECT_EQ(r.nonfinite_steps, i);
  }
  const StepReport good = *must(run(1));
  EXPECT_EQ(good.nonfinite_in_row, 0u);
  EXPECT_EQ(good.nonfinite_steps, 4u);
  for (int i = 1; i <= 4; ++i) {
    must(run(kInfinity));
  }
  const auto last = run(kInfinity);
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.status().code(), Code::non_finite);
  EXPECT_NE(last.status().message().find("Step 10: the loss is inf"), std::string::npos);
  EXPECT_NE(last.status().message().find("non-finite step 5 in a row"), std::string::npos);
  EXPECT_EQ(t.steps(), 10u);
  EXPECT_EQ(t.state(), TrainState::ready);
}

TEST(NonFinite, StopNamesTheNodeOrTheParameter) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm(2);
  ASSERT_OK(lm.model.to(cpu));
  TrainOptions o = adamw(lm);
  o.on_nonfinite = OnNonFinite::stop;
  o.accumulation = 2;
  Trainer t = must(Trainer::create(lm.model, cpu, o));
  must(train_step(t, lm, 0, 2));
  must(t.micro_step(lm.data(2)));
  const Floats good = values(lm.model, "layers.1.up");
  // A finite value with products that are infinite.
  Floats huge = good;
  std::ranges::fill(huge, 3e38f);
  ASSERT_OK(set(lm.model, "layers.1.up", {64, 16}, huge));
  const auto before = all_bytes(lm.model);
  auto r = t.micro_step(lm.data(3));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), Code::non_finite);
  EXPECT_NE(r.status().message().find("(Linear) in iteration 1 of node"), std::string::npos)
      << r.status().message();
  EXPECT_EQ(t.accumulated(), 0u);
  EXPECT_EQ(t.steps(), 1u);
  huge[5] = kNaN;
  ASSERT_OK(set(lm.model, "layers.1.up", {64, 16}, huge));
  r = t.micro_step(lm.data(3));
  EXPECT_NE(r.status().message().find("Parameter \"layers.1.up\" has a value that is not finite."),
            std::string::npos)
      << r.status().message();
  ASSERT_OK(set(lm.model, "layers.1.up", {64, 16}, good));
  must(train_step(t, lm, 2, 2));
  EXPECT_EQ(t.steps(), 2u);
}

// f16 cannot represent 300 * 300.
TEST(NonFinite, StopNamesANodeOfSixteenBits) {
  const Device cpu = open_test_device("cpu");
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones()));
  GraphBuilder g(m, "loss");
  const Value x = g.op("Cast", {g.input("x", DType::f32, {1})}, {{"to", "f16"}});
  const Value half = g.op("Cast", {g.parameter(w)}, {{"to", "f16"}});
  const Value y = g.named("product").op("Mul", {g.named("square").op("Mul", {x, x}), half});
  g.output("loss", g.op("ReduceSum", {g.op("Cast", {y}, {{"to", "f32"}})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  ASSERT_OK(m.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  o.on_nonfinite = OnNonFinite::stop;
  Trainer t = must(Trainer::create(m, cpu, o));
  Floats data = {300};
  const Tensor batch[] = {tensor("x", {1}, data)};
  const Status stopped = t.micro_step(batch).status();
  EXPECT_EQ(stopped.code(), Code::non_finite);
  EXPECT_NE(stopped.message().find("\"square\" (Mul)"), std::string::npos) << stopped.message();
  EXPECT_EQ(values(m, "w"), Floats({1}));
}

TEST(NonFinite, RollbackGoesBackToTheSnapshot) {
  const Device cpu = open_test_device("cpu");
  Seed s = scalar2(1);
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  o.on_nonfinite = OnNonFinite::rollback;
  o.max_nonfinite_in_row = 2;
  Trainer t = must(Trainer::create(s.model, cpu, o));
  s.x = {kInfinity};
  const auto none = t.micro_step(s.batch());
  EXPECT_NE(none.status().message().find("no snapshot to roll back to"), std::string::npos);
  s.x = {1};
  step(t, s);
  ASSERT_OK(t.snapshot());
  const uint64_t at = t.steps();
  step(t, s);
  s.x = {kInfinity};
  const StepReport r = step(t, s);
  EXPECT_TRUE(r.rolled_back);
  EXPECT_EQ(r.step, at + 2);
  EXPECT_EQ(t.steps(), at);
  EXPECT_EQ(t.micro_step(s.batch()).status().code(), Code::non_finite);
  EXPECT_EQ(t.steps(), at);
}

TEST(NonFinite, StepsThatARollbackRepeatsEndNoRow) {
  const Device cpu = open_test_device("cpu");
  Seed s = scalar2(1);
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  o.on_nonfinite = OnNonFinite::rollback;
  o.max_nonfinite_in_row = 3;
  Trainer t = must(Trainer::create(s.model, cpu, o));
  ASSERT_OK(t.snapshot());
  const auto two_steps = [&](float second) {
    s.x = {1};
    must(t.micro_step(s.batch()));
    s.x = {second};
    return t.micro_step(s.batch());
  };
  EXPECT_EQ(must(two_steps(kInfinity))->nonfinite_in_row, 1u);
  EXPECT_EQ(must(two_steps(kInfinity))->nonfinite_in_row, 2u);
  EXPECT_EQ(two_steps(kInfinity).status().code(), Code::non_finite);
  // A good step ends the row of bad steps.
  must(two_steps(1));
  must(two_steps(1));
  s.x = {kInfinity};
  EXPECT_EQ(step(t, s).nonfinite_in_row, 1u);
}

TEST(Options, WhatIsNoNumberOrOutsideItsRangeIsRefused) {
  const Device cpu = open_test_device("cpu");
  Seed s = lm32();
  ASSERT_OK(s.model.to(cpu));
  const auto refusal = [&](const auto& set_option) {
    TrainOptions o;
    set_option(o);
    const auto t = Trainer::create(s.model, cpu, o);
    return t.ok() ? std::string("accepted") : t.status().message();
  };
  EXPECT_EQ(refusal([](TrainOptions& o) { o.optimizer.settings["beta2"] = 1; }),
            "beta2 is 1, outside [0, 1).");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.optimizer.settings["beta1"] = -0.5f; }),
            "beta1 is -0.5, outside [0, 1).");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.optimizer.settings["beta2"] = kNaN; }),
            "beta2 is nan, outside [0, 1).");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.optimizer.settings["eps"] = 0; }),
            "eps is 0, outside (0, inf).");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.schedule.learning_rate = kNaN; }),
            "learning_rate is nan; it must be finite and not negative.");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.schedule.final_fraction = -1; }),
            "final_fraction is -1; it must be finite and not negative.");
  for (const auto& [kind, name] :
       {std::pair(Schedule::Kind::linear, "linear"), std::pair(Schedule::Kind::cosine, "cosine")}) {
    EXPECT_EQ(refusal([kind = kind](TrainOptions& o) { o.schedule.kind = kind; }),
              format("A {} schedule ends at its last step, and total_steps is 0. Set total_steps, "
                     "or choose a constant schedule.",
                     name));
  }
  EXPECT_EQ(refusal([](TrainOptions& o) { o.optimizer.settings["weight_decay"] = kInfinity; }),
            "weight_decay is inf, outside [0, inf).");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.clip_norm = kNaN; }),
            "clip_norm is nan; it must be finite and not negative.");
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.optimizer = {"sgd", {{"momentum", 1}}};
            }),
            "momentum is 1, outside [0, 1).");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.accumulation = 0; }),
            "The accumulation is 0; it must be at least 1.");
}

}  // namespace
}  // namespace bowline::test
