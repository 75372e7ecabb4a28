// Model::copy_values_from(): a model that serves takes the values of a model that trains.
#include <atomic>
#include <thread>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

class CopyValues : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(CopyValues);

float loss_of(Session& session, TinyLm& lm) {
  Floats loss(1);
  const Dims scalar;
  const Tensor outputs[] = {tensor("loss", scalar, loss)};
  must(session.run(lm.data(1000), outputs));
  return loss[0];
}

TEST_P(CopyValues, TheOtherModelServesTheNewWeights) {
  TinyLm trained = tiny_lm(1);
  ASSERT_OK(trained.model.to(device_));
  TinyLm served = tiny_lm(1);
  ASSERT_OK(served.model.to(must(Device::open("cpu"))));
  served.model = must(trained.model.clone());
  Session session = must(Session::create(served.model, device_, "loss", served.dims()));
  const float before = loss_of(session, served);
  const std::string ties = served.model.ties();
  const uint64_t builds = session.counters().plan_builds;
  {
    Trainer t = must(Trainer::create(trained.model, device_, adamw(trained)));
    must(train_step(t, trained, 0));
    EXPECT_EQ(loss_of(session, served), before);
    ASSERT_OK(served.model.copy_values_from(trained.model));
  }
  EXPECT_NE(loss_of(session, served), before);
  EXPECT_EQ(session.counters().plan_builds, builds);
  EXPECT_EQ(served.model.ties(), ties);
  EXPECT_EQ(all_bytes(served.model), all_bytes(trained.model));
  Session own = must(Session::create(trained.model, device_, "loss", trained.dims()));
  EXPECT_EQ(loss_of(session, served), loss_of(own, served));
}

TEST_P(CopyValues, FromHostMemoryToADeviceAndBack) {
  TinyLm here = tiny_lm(1, 0.1f, 1);
  TinyLm there = tiny_lm(1, 0.1f, 2);
  ASSERT_OK(there.model.to(device_));
  ASSERT_NE(all_bytes(here.model), all_bytes(there.model));
  const auto second = all_bytes(there.model);
  ASSERT_OK(here.model.copy_values_from(there.model));
  EXPECT_EQ(all_bytes(here.model), second);
  const TinyLm third = tiny_lm(1, 0.1f, 3);
  ASSERT_OK(there.model.copy_values_from(third.model));
  EXPECT_EQ(all_bytes(there.model), all_bytes(third.model));
  EXPECT_EQ(all_bytes(here.model), second);
}

// The session holds the product of two parameters from its first run on.
TEST_P(CopyValues, HoistedValuesAreComputedAgain) {
  const auto make = [&](uint64_t seed) {
    Model model;
    const Parameter a = must(model.parameter("a", {4, 4}, Init::normal(1)));
    const Parameter b = must(model.parameter("b", {4, 4}, Init::normal(1)));
    GraphBuilder g(model, "forward");
    const Value w = g.op("Mul", {g.parameter(a), g.parameter(b)});
    g.output("y", g.op("Linear", {g.input("x", DType::f32, {2, 4}), w}));
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(seed));
    EXPECT_OK(model.to(device_));
    return model;
  };
  Model one = make(1);
  Model two = make(2);
  Session session = must(Session::create(one, device_, "forward", {}));
  Session other = must(Session::create(two, device_, "forward", {}));
  const Floats before = run_with_x(session, {2, 4});
  ASSERT_OK(one.copy_values_from(two));
  EXPECT_NE(run_with_x(session, {2, 4}), before);
  EXPECT_EQ(run_with_x(session, {2, 4}), run_with_x(other, {2, 4}));
}

TEST(CopyValuesRules, ThisModelMayBeTiedLess) {
  TinyLm from = tiny_lm(1, 0.1f, 1);
  TinyLm to = tiny_lm(1, 0.1f, 2);
  must(to.model.untie("head.weight"));
  ASSERT_OK(to.model.copy_values_from(from.model));
  EXPECT_EQ(values(to.model, "head.weight"), values(from.model, "embed.weight"));
  EXPECT_FALSE(must(to.model.same_storage("head.weight", "embed.weight")));
  const auto before = all_bytes(from.model);
  const Status refused = from.model.copy_values_from(to.model);
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "Parameters \"embed.weight\" and \"head.weight\" are tied here, but not in the other "
            "model.");
  EXPECT_EQ(all_bytes(from.model), before);
}

TEST(CopyValuesRules, OtherParametersAreRefused) {
  TinyLm one = tiny_lm(1);
  TinyLm two = tiny_lm(2);
  EXPECT_EQ(one.model.copy_values_from(two.model).message(),
            "The model has no parameter \"layers.1.norm1\".");
  EXPECT_EQ(two.model.copy_values_from(one.model).message(),
            "The other model has no parameter \"layers.1.norm1\".");
  TinyLm wide = tiny_lm(1, 0.1f, 1, 32);
  EXPECT_EQ(one.model.copy_values_from(wide.model).message(),
            "The storage of parameter \"embed.weight\" is f32[29,16] (plain) here and f32[29,32] "
            "(plain) in the other model, or the parameter has another view.");
  Model empty;
  must(empty.parameter("w", {1}, Init::ones()));
  Model filled;
  must(filled.parameter("w", {1}, Init::ones()));
  ASSERT_OK(filled.materialize(1));
  EXPECT_EQ(filled.copy_values_from(empty).message(),
            "Parameter \"w\" has no values in the other model.");
  ASSERT_OK(empty.copy_values_from(filled));
  EXPECT_EQ(values(empty, "w"), Floats{1});
  ASSERT_OK(filled.copy_values_from(filled));
}

TEST(CopyValuesRules, ACallbackOfTheSameModelIsRefused) {
  const Device device = must(Device::open("cpu"));
  TinyLm trained = tiny_lm(1);
  ASSERT_OK(trained.model.to(device));
  TinyLm served = tiny_lm(1);
  Trainer t = must(Trainer::create(trained.model, device, adamw(trained)));
  Code from = Code::ok;
  Code to = Code::ok;
  t.set_gradient_hook([&](const GradientInfo&, std::span<float>) {
    from = served.model.copy_values_from(trained.model).code();
    to = trained.model.copy_values_from(served.model).code();
    return Status();
  });
  must(train_step(t, trained, 0));
  EXPECT_EQ(from, Code::bad_argument);
  EXPECT_EQ(to, Code::bad_argument);
}

// All weights of the trained model are equal after each step, because the hook makes all gradients
// equal. So a run that sees two values has seen a part of a copy.
TEST(CopyValuesThreads, ARunNeverSeesAPartOfACopy) {
  const Device device = must(Device::open("cpu"));
  constexpr int kWeights = 8;
  const auto make = [&] {
    Model model;
    GraphBuilder g(model, "loss");
    const Value x = g.input("x", DType::f32, {64});
    std::vector<Value> parts;
    for (int i = 0; i < kWeights; ++i) {
      const Parameter w = must(model.parameter(format("w{}", i), {64}, Init::ones()));
      const Value part = g.op("ReduceSum", {g.op("Mul", {x, g.parameter(w)})});
      g.output(format("sum{}", i), part);
      parts.push_back(part);
    }
    Value loss = parts[0];
    for (int i = 1; i < kWeights; ++i) {
      loss = g.op("Add", {loss, parts[static_cast<size_t>(i)]});
    }
    g.output("loss", loss);
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(1));
    EXPECT_OK(model.to(device));
    return model;
  };
  Model trained = make();
  Model served = make();
  TrainOptions o;
  o.optimizer = {"sgd", {}};
  o.schedule.learning_rate = 0.125f;
  Trainer trainer = must(Trainer::create(trained, device, o));
  Session session = must(Session::create(served, device, "loss", {}));
  Floats x(64, 1);
  const Tensor in = tensor("x", {64}, x);
  std::atomic<bool> done = false;
  std::atomic<int> runs = 0;
  std::thread serves([&] {
    std::vector<Floats> sums(kWeights, Floats(1));
    const Dims scalar;
    std::vector<std::string> names;
    std::vector<Tensor> out;
    for (int i = 0; i < kWeights; ++i) {
      names.push_back(format("sum{}", i));
    }
    for (size_t i = 0; i < kWeights; ++i) {
      out.push_back(tensor(names[i], scalar, sums[i]));
    }
    while (!done || runs < 50) {
      EXPECT_OK(session.run({&in, 1}, out));
      for (const Floats& sum : sums) {
        EXPECT_EQ(sum, sums[0]);
      }
      ++runs;
    }
  });
  std::thread copies([&] {
    while (!done) {
      EXPECT_OK(served.copy_values_from(trained));
    }
  });
  for (int step = 0; step < 200 || runs < 50; ++step) {
    must(trainer.micro_step({&in, 1}));
  }
  done = true;
  serves.join();
  copies.join();
}

}  // namespace
}  // namespace bowline::test
