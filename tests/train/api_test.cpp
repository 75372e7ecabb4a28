// Functions of a Trainer besides steps: gradients, outputs, the learning rate, and groups of
// parameters.
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

using Asked = OnDevice;
BOWLINE_ON_ALL_DEVICES(Asked);

ParameterGroup group(std::string pattern, float learning_rate_factor = 1,
                     std::optional<float> weight_decay = {}) {
  ParameterGroup g;
  g.pattern = std::move(pattern);
  g.learning_rate_factor = learning_rate_factor;
  g.weight_decay = weight_decay;
  return g;
}

Floats gradient(const Trainer& t, std::string_view name, const Dims& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) {
    n *= d;
  }
  Floats out(static_cast<size_t>(n));
  EXPECT_OK(t.gradient(name, tensor("", shape, out)));
  return out;
}

// L = sum of transpose(W) W x: the gradient of both uses, of W and of its transposed view.
TEST_P(Asked, AGradientThroughTheViewOfItsParameter) {
  Seed s = ae23();
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.01f);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(s.model, device_, o));
  Floats out(6);
  const Dims straight = {2, 3};
  const Dims turned = {3, 2};
  EXPECT_NE(t.gradient("encoder", tensor("", straight, out)).message().find("no micro-batch"),
            std::string::npos);
  must(t.micro_step(s.batch()));
  // y = (1, 4). As a decoder, each row gets y. As an encoder, the first column gets the row sums 6
  // and 15.
  EXPECT_EQ(gradient(t, "encoder", straight), Floats({7, 1, 1, 19, 4, 4}));
  EXPECT_EQ(gradient(t, "decoder", turned), Floats({7, 19, 1, 4, 1, 4}));
  EXPECT_EQ(t.gradient("decoder", tensor("", straight, out)).code(), Code::bad_argument);
  must(t.micro_step(s.batch()));
  EXPECT_EQ(gradient(t, "encoder", straight), Floats({14, 2, 2, 38, 8, 8}));
}

TEST_P(Asked, EvaluateWritesOutputs) {
  Seed s = ae23();
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.01f)));
  Floats y(2);
  Floats z(3);
  const Dims y_shape = {1, 2};
  const Dims z_shape = {1, 3};
  const Tensor outputs[] = {tensor("z", z_shape, z), tensor("y", y_shape, y)};
  const float with = must(t.evaluate(s.batch(), outputs));
  EXPECT_EQ(with, must(t.evaluate(s.batch())));
  EXPECT_EQ(y, Floats({1, 4}));
  EXPECT_EQ(z, Floats({17, 22, 27}));
  const Tensor unknown[] = {tensor("no", y_shape, y)};
  EXPECT_EQ(t.evaluate(s.batch(), unknown).status().code(), Code::bad_argument);
}

TEST_P(Asked, EvaluateWithOutputsComputesInTheSameDtype) {
  const auto loss_in = [&](std::optional<DType> compute, bool with_outputs) {
    TinyLm lm = tiny_lm(2, 0.0f);
    EXPECT_OK(lm.model.to(device_));
    TrainOptions o = adamw(lm);
    o.precision.compute_dtype = compute;
    Trainer t = must(Trainer::create(lm.model, device_, o));
    return must(with_outputs ? t.evaluate(lm.data(1), {}) : t.evaluate(lm.data(1)));
  };
  EXPECT_EQ(loss_in(DType::bf16, true), loss_in(DType::bf16, false));
  EXPECT_NE(loss_in(DType::bf16, true), loss_in({}, true));
}

TEST_P(Asked, GroupsScaleTheRateAndReplaceTheDecay) {
  const auto make = [] {
    Seed s = lm32();
    EXPECT_OK(s.model.untie("head").status());
    return s;
  };
  Seed plain = make();
  ASSERT_OK(plain.model.to(device_));
  TrainOptions o = plain_sgd(0.5f);
  {
    Trainer t = must(Trainer::create(plain.model, device_, o));
    step(t, plain);
  }
  Seed s = make();
  const Floats begin = values(s.model, "head");
  ASSERT_OK(s.model.to(device_));
  o.groups = {group("he?d", 0.5f), group("*", 1, 0.25f)};
  Trainer t = must(Trainer::create(s.model, device_, o));
  step(t, s);
  const Floats whole = values(plain.model, "head");
  const Floats half = values(s.model, "head");
  for (size_t i = 0; i < begin.size(); ++i) {
    EXPECT_EQ(half[i] - begin[i], 0.5f * (whole[i] - begin[i]));
  }
  // The weight decay of SGD is added to the gradient: w - 0.5 (g + 0.25 w).
  const Floats undecayed = values(plain.model, "embed");
  const Floats embed = values(s.model, "embed");
  const Floats first = {1, 0, 0, 1, 1, 1};
  for (size_t i = 0; i < embed.size(); ++i) {
    EXPECT_EQ(embed[i], undecayed[i] - 0.125f * first[i]);
  }
}

TEST(Groups, ConflictsAndPatternsWithoutAMatchAreRefused) {
  const Device cpu = open_test_device("cpu");
  Seed s = lm32();
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  const auto refusal = [&] {
    const auto t = Trainer::create(s.model, cpu, o);
    return t.ok() ? std::string("accepted") : t.status().message();
  };
  o.groups = {group("emb*"), group("*d")};
  EXPECT_EQ(refusal(),
            "Parameters \"embed\" and \"head\" share a storage, but the first is in group \"emb*\" "
            "and the second in \"*d\".");
  o.groups = {group("emb*"), group("layers.?.w")};
  EXPECT_EQ(refusal(), "The pattern \"layers.?.w\" of a group matches no trainable parameter.");
  o.groups = {group("emb*", -1)};
  EXPECT_EQ(
      refusal(),
      "learning_rate_factor is -1; it must be finite and not negative.\n- In the group \"emb*\".");
}

TEST(LearningRate, OverridesTheScheduleUntilItIsCleared) {
  const std::string path = testing::TempDir() + "bowline_rate_" + std::to_string(getpid());
  const Device cpu = open_test_device("cpu");
  Seed s = lm32();
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  o.schedule.warmup_steps = 10;
  Trainer t = must(Trainer::create(s.model, cpu, o));
  EXPECT_EQ(step(t, s).learning_rate, learning_rate_at(o.schedule, 1));
  ASSERT_OK(t.set_learning_rate(0.125f));
  EXPECT_EQ(step(t, s).learning_rate, 0.125f);
  ASSERT_OK(t.save(path, {}));
  ASSERT_OK(t.set_learning_rate({}));
  EXPECT_EQ(step(t, s).learning_rate, learning_rate_at(o.schedule, 3));
  must(t.resume(path));
  EXPECT_EQ(step(t, s).learning_rate, 0.125f);
  EXPECT_EQ(t.set_learning_rate(NAN).message(),
            "The learning rate is nan; it must be finite and not negative.");
  EXPECT_EQ(step(t, s).learning_rate, 0.125f);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bowline::test
