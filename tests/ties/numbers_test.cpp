// The exact numbers of the seed models, on every device; a wrong one names the bug that it looks like. With Adam: adam_test.cpp.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Numbers = OnDevice;
BOWLINE_ON_ALL_DEVICES(Numbers);

TEST_P(Numbers, Scalar2) {
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.1f)));
  const StepReport r = step(t, s);
  expect_number(r.loss, 6);
  expect_number(r.grad_norm, 6, {{8.4853, "counted twice"}, {4.2426, "untied"}});
  expect_number(values(s.model, "a")[0], 0.4);
  EXPECT_EQ(values(s.model, "a"), values(s.model, "b"));
  expect_number(loss(t, s), 2.4,
                {{4.2, "untied, or the gradient is overwritten"},
                 {-1.2, "listed twice"},
                 {5.1, "one side is stale"},
                 {6, "the optimizer is stale"}});
}

TEST_P(Numbers, Scalar2Decay) {
  for (const Optimizer::Kind kind : {Optimizer::Kind::sgd, Optimizer::Kind::adamw}) {
    Seed s = scalar2(1);
    ASSERT_OK(s.model.to(device_));
    TrainOptions o = plain_sgd(0.1f);
    o.optimizer.kind = kind;
    o.optimizer.weight_decay = 0.1f;
    o.optimizer.decay_all = true;
    Trainer t = must(Trainer::create(s.model, device_, o));
    step(t, s);
    // L2 in SGD: 1 - 0.1 (2 + 0.1). Decoupled in AdamW: 0.99, then a step of 0.1.
    const double right = kind == Optimizer::Kind::sgd ? 0.79 : 0.89;
    expect_number(values(s.model, "a")[0], right,
                  {{0.78, "decayed twice"}, {0.8801, "decayed twice"}});
  }
}

TEST_P(Numbers, Scalar2Momentum) {
  Seed s = scalar2(1);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.1f);
  o.optimizer.momentum = 0.9f;
  Trainer t = must(Trainer::create(s.model, device_, o));
  step(t, s);
  step(t, s);
  expect_number(values(s.model, "a")[0], 0.42, {{0.13, "the sharer keeps a history of its own"}});
}

TEST_P(Numbers, Scalar2Norm) {
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.1f);
  o.clip_norm = 1;
  Trainer t = must(Trainer::create(s.model, device_, o));
  expect_number(step(t, s).grad_norm, 6, {{8.4853, "counted twice"}, {4.2426, "untied"}});
  expect_number(values(s.model, "a")[0], 0.9, {{0.92929, "the norm counts the tie twice"}});
}

TEST_P(Numbers, Lm32) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Session session = must(Session::create(s.model, device_, "loss", {}));
  Floats logits(3);
  const Dims shape = {1, 3};
  const Tensor out[] = {tensor("logits", shape, logits)};
  ASSERT_OK(session.run(s.batch(), out));
  EXPECT_EQ(logits, Floats({1, 1, 2}));

  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.1f)));
  const StepReport r = step(t, s);
  expect_number(r.loss, 4);
  expect_number(r.grad_norm, 4.690416, {{3.741657, "untied"}, {6.63325, "counted twice"}});
  const Floats e = values(s.model, "embed");
  const Floats right = {.9f, -.1f, -.1f, .9f, .7f, .7f};
  for (size_t i = 0; i < e.size(); ++i) {
    expect_number(e[i], right[i]);
  }
  EXPECT_EQ(e, values(s.model, "head"));
  expect_number(loss(t, s), 2.1,
                {{2.72, "untied"},
                 {3.2, "the head is stale"},
                 {3.4, "the embedding is stale"},
                 {3.06, "the gradient of the embedding is lost"},
                 {2.88, "the gradient of the head is lost"},
                 {0.8, "listed twice"}});
}

TEST_P(Numbers, Lm32Run) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.01f)));
  for (const double right : {3.783, 3.577674, 3.383393, 3.199561, 3.025615}) {
    step(t, s);
    expect_number(loss(t, s), right);
    EXPECT_EQ(values(s.model, "embed"), values(s.model, "head"));
  }
}

TEST_P(Numbers, Ae23) {
  Seed s = ae23();
  ASSERT_OK(s.model.to(device_));
  Session session = must(Session::create(s.model, device_, "loss", {}));
  Floats y(2);
  Floats z(3);
  const Dims ys = {1, 2};
  const Dims zs = {1, 3};
  const Tensor out[] = {tensor("y", ys, y), tensor("z", zs, z)};
  ASSERT_OK(session.run(s.batch(), out));
  EXPECT_EQ(y, Floats({1, 4}));
  EXPECT_EQ(z, Floats({17, 22, 27}));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.01f)));
  expect_number(step(t, s).loss, 66);
  const Floats w = values(s.model, "encoder");
  const Floats gradient = {7, 1, 1, 19, 4, 4};
  for (size_t i = 0; i < w.size(); ++i) {
    expect_number(w[i], static_cast<double>(i + 1) - 0.01 * static_cast<double>(gradient[i]));
  }
  expect_number(loss(t, s), 61.6176,
                {{62.8998, "untied"}, {62.73, "the copy of the decoder is stale"}});
}

TEST_P(Numbers, Ut12) {
  Seed s = universal(12);
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.001f)));
  const StepReport r = step(t, s);
  expect_number(r.loss, 3.138428377);
  expect_number(r.grad_norm, 34.237400473,
                {{2.853116706, "only the last use counts"}, {9.88348619, "counted as 12"}});
  expect_number(values(s.model, "layer.11.w")[0], 1.0657626, {{0.689151194, "stepped 12 times"}});
}

}  // namespace
}  // namespace bowline::test
