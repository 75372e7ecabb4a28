// Ownership of the training state: one Trainer at a time, with a fresh start or a checkpoint, and
// the rows that it leaves behind.
#include <unistd.h>

#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

std::string scratch(const char* name) {
  return testing::TempDir() + "bowline_state_" + std::to_string(getpid()) + "_" + name;
}

TrainOptions adam(float learning_rate) {
  TrainOptions o;
  o.optimizer.settings["weight_decay"] = 0;
  o.schedule.learning_rate = learning_rate;
  return o;
}

TEST(Owner, ASecondTrainerIsRefusedAndAFreshOneInheritsNothing) {
  const Device cpu = open_test_device("cpu");
  Seed once = lm32();
  ASSERT_OK(once.model.to(cpu));
  const std::string untouched = once.model.storages();
  {
    Trainer t = must(Trainer::create(once.model, cpu, adam(0.1f)));
    const auto second = Trainer::create(once.model, cpu, adam(0.1f));
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), Code::bad_argument);
    EXPECT_EQ(second.status().message(),
              "The model is busy: it can have one Trainer at a time, and it has one.");
    EXPECT_EQ(once.model.drop_training_state().code(), Code::bad_argument);
    for (int i = 0; i < 3; ++i) {
      step(t, once);
    }
  }
  // The rows of the training are removed. The weight remains, with the values of three steps.
  EXPECT_EQ(must(once.model.describe()).storages.size(), 1u);
  Seed fresh = lm32();
  ASSERT_OK(set(fresh.model, "embed", {3, 2}, values(once.model, "embed")));
  ASSERT_OK(fresh.model.to(cpu));
  Trainer a = must(Trainer::create(once.model, cpu, adam(0.01f)));
  Trainer b = must(Trainer::create(fresh.model, cpu, adam(0.01f)));
  EXPECT_EQ(a.steps(), 0u);
  step(a, once);
  step(b, fresh);
  EXPECT_EQ(values(once.model, "embed"), values(fresh.model, "embed"));
}

std::vector<Floats> weights_of(const Model& model) {
  std::vector<Floats> out;
  for (const ParameterInfo& p : must(model.describe()).parameters) {
    out.push_back(values(model, p.name));
  }
  return out;
}

TEST(Owner, AnotherOptimizerBeginsWithItsOwnMoments) {
  const Device cpu = open_test_device("cpu");
  Seed a = lm32();
  ASSERT_OK(a.model.to(cpu));
  {
    Trainer t = must(Trainer::create(a.model, cpu, adam(0.1f)));
    step(t, a);
  }
  Seed b = lm32();
  ASSERT_OK(set(b.model, "embed", {3, 2}, values(a.model, "embed")));
  ASSERT_OK(b.model.to(cpu));
  TrainOptions o = plain_sgd(0.01f);
  o.optimizer.settings["momentum"] = 0.9f;
  Trainer t = must(Trainer::create(a.model, cpu, o));
  Trainer u = must(Trainer::create(b.model, cpu, o));
  for (int i = 0; i < 2; ++i) {
    step(t, a);
    step(u, b);
  }
  EXPECT_EQ(values(a.model, "embed"), values(b.model, "embed"));
}

// A checkpoint that is opened as a model. A fresh start discards its training state, and a
// continued start uses it. A saved model and a clone have no training state. The moments stay in
// the file until a Trainer needs them.
TEST(Owner, ACheckpointIsContinuedOnlyWhenAsked) {
  const std::string path = scratch("continued");
  const Device cpu = open_test_device("cpu");
  TinyLm whole = tiny_lm();
  ASSERT_OK(whole.model.to(cpu));
  Trainer t = must(Trainer::create(whole.model, cpu, adamw(whole)));
  for (uint32_t i = 0; i < 3; ++i) {
    must(train_step(t, whole, i));
  }
  ASSERT_OK(t.save(path, {}));
  const auto open = [&] {
    TinyLm lm;
    lm.model = must(Model::open(path));
    EXPECT_OK(lm.model.to(cpu));
    return lm;
  };
  const auto one_step = [&](TinyLm& lm, TrainStart start) {
    TrainOptions o = adamw(lm);
    o.start = start;
    Trainer u = must(Trainer::create(lm.model, cpu, o));
    const StepReport r = must(train_step(u, lm, 3));
    return std::pair(r.step, weights_of(lm.model));
  };
  const uint64_t before = cpu.counters().live_bytes;
  TinyLm continued = open();
  const uint64_t weights = cpu.counters().live_bytes - before;
  uint64_t weight_bytes = 0;
  for (const StorageInfo& row : must(continued.model.describe()).storages) {
    weight_bytes += row.role == StorageRole::weight ? row.bytes : 0;
  }
  EXPECT_EQ(weights, weight_bytes) << "moments are not moved to the device";
  EXPECT_EQ(must(continued.model.clone()).storages().find("moment"), std::string::npos);
  ASSERT_OK(continued.model.save(path + ".plain"));
  Model plain = must(Model::open(path + ".plain"));
  EXPECT_FALSE(must(plain.describe()).training.has_value());
  EXPECT_EQ(plain.storages().find("moment"), std::string::npos);

  const auto right = must(train_step(t, whole, 3));
  const auto went_on = one_step(continued, TrainStart::from_checkpoint);
  EXPECT_EQ(went_on.first, 4u);
  EXPECT_EQ(went_on.second, weights_of(whole.model));
  EXPECT_EQ(right.step, 4u);

  TinyLm fresh = open();
  TinyLm stripped;
  stripped.model = std::move(plain);
  ASSERT_OK(stripped.model.to(cpu));
  const auto began = one_step(fresh, TrainStart::fresh);
  EXPECT_EQ(began.first, 1u);
  EXPECT_EQ(began, one_step(stripped, TrainStart::fresh));

  TinyLm dropped = open();
  ASSERT_OK(dropped.model.drop_training_state());
  TrainOptions o = adamw(dropped);
  o.start = TrainStart::from_checkpoint;
  const auto none = Trainer::create(dropped.model, cpu, o);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("has no training state"), std::string::npos);
  TinyLm other = open();
  o.optimizer = {"sgd"};
  const std::string listing = other.model.storages();
  const auto sgd = Trainer::create(other.model, cpu, o);
  ASSERT_FALSE(sgd.ok());
  EXPECT_NE(sgd.status().message().find("another optimizer: adamw, now sgd"), std::string::npos)
      << sgd.status().message();
  EXPECT_EQ(other.model.storages(), listing);
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".plain");
}

TEST(Owner, NothingStaysOnTheDeviceThatTheModelLeft) {
  const Device a = open_test_device("cpu");
  const Device b = open_test_device("cpu");
  Seed s = lm32();
  ASSERT_OK(s.model.to(a));
  Trainer t = must(Trainer::create(s.model, a, adam(0.1f)));
  Session session = must(Session::create(s.model, a, "loss", {}));
  step(t, s);
  ASSERT_OK(s.model.to(b));
  EXPECT_EQ(a.counters().live_bytes, 0u);
  EXPECT_EQ(t.memory().arena_bytes + t.memory().io_bytes + session.memory().arena_bytes, 0u);
  EXPECT_FALSE(t.listing("build").ok());
  EXPECT_FALSE(session.listing("build").ok());
  step(t, s);
  EXPECT_GT(t.memory().io_bytes, 0u);
}

TEST(Owner, AModelOnTheWrongDeviceIsToldWhereItLies) {
  const Device a = open_test_device("cpu");
  const Device b = open_test_device("cpu");
  Seed s = lm32();
  const auto session = [&](const Device& device) {
    return Session::create(s.model, device, "loss", {}).status().message();
  };
  const auto trainer = [&](const Device& device) {
    return Trainer::create(s.model, device, plain_sgd(0.1f)).status().message();
  };
  const char* in_host_memory =
      "The model is not on device cpu but in host memory. Move it with Model::to().";
  EXPECT_EQ(session(a), in_host_memory);
  EXPECT_EQ(trainer(a), in_host_memory);
  ASSERT_OK(s.model.to(a));
  const char* opened_again =
      "The model is on device cpu, but cpu was opened again since then, and each open Device has "
      "its own memory. Pass the Device that the model was moved to, or move the model with "
      "Model::to().";
  EXPECT_EQ(session(b), opened_again);
  EXPECT_EQ(trainer(b), opened_again);
  EXPECT_EQ(session(open_test_device("null")),
            "The model is not on device null but on cpu. Move it with Model::to().");
}

TEST(Owner, NothingToTrainInAStorageWithoutElements) {
  Seed s;
  s.shape = {1, 2};
  s.x = {1, 2};
  const Dims none = {0, 2};
  const Dims square = {2, 2};
  const Parameter z = must(s.model.parameter("z", none, Init::normal(1)));
  const Parameter w = must(s.model.parameter("w", square, Init::ones()));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {1, 2});
  const Value y =
      g.op("Concat", {g.op("Linear", {x, g.parameter(w)}), g.op("Linear", {x, g.parameter(z)})},
           {{"axis", 1}});
  g.output("loss", g.op("ReduceSum", {y}));
  ASSERT_OK(g.finish());
  ASSERT_OK(s.model.materialize(1));
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(s.model.to(cpu));
  Trainer t = must(Trainer::create(s.model, cpu, plain_sgd(0.1f)));
  expect_number(step(t, s).loss, 6);
  expect_number(loss(t, s), 6 - 0.1 * 2 * 5);
}

TEST(Accumulation, VerbsThatChangeWhatGradientsBelongToAreRefused) {
  const Device cpu = open_test_device("cpu");
  const std::string path = scratch("assigned");
  Seed s = lm32();
  ASSERT_OK(s.model.save(path));
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(1);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(s.model, cpu, o));
  must(t.micro_step(s.batch()));
  const std::string before = s.model.storages() + s.model.parameters();
  const auto refused = [&](const Status& status, const char* verb) {
    EXPECT_EQ(status.code(), Code::bad_argument);
    EXPECT_EQ(status.message().substr(0, status.message().find('\n')),
              format("The model is busy: a step is unfinished, and {} would change the parameters "
                     "of its gradients. Finish the step, or call Trainer::restart_step().",
                     verb));
  };
  refused(s.model.untie("head").status(), "untie()");
  refused(s.model.tie("embed", "head").status(), "tie()");
  refused(s.model.freeze("head"), "freeze()");
  refused(s.model.freeze("head", false), "thaw()");
  refused(s.model.load(path, {.mode = LoadMode::assign}).status(), "load()");
  EXPECT_EQ(s.model.storages() + s.model.parameters(), before);
  EXPECT_EQ(t.accumulated(), 1u);
  ASSERT_OK(t.restart_step());
  EXPECT_EQ(t.accumulated(), 0u);
  EXPECT_OK(s.model.untie("head").status());
  must(t.micro_step(s.batch()));
  const StepReport r = *must(t.micro_step(s.batch()));
  expect_number(r.grad_norm, std::sqrt(8.0 + 6.0), {}, 1e-5);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bowline::test
