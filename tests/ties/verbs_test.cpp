// Every verb keeps the ties on every device: neither the listing of the ties nor the values change.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Verbs = OnDevice;
BOWLINE_ON_ALL_DEVICES(Verbs);

TEST_P(Verbs, MovesAreOneTransferPerStorage) {
  Seed s = lm32();
  const std::string before = s.model.ties();
  device_.reset_counters();
  ASSERT_OK(s.model.to(device_));
  EXPECT_EQ(device_.counters().copies_in, 1u);
  EXPECT_EQ(device_.counters().allocations, 1u);
  ASSERT_OK(s.model.to(device_));
  EXPECT_EQ(device_.counters().allocations, 1u) << "a move that changes nothing allocates nothing";
  EXPECT_EQ(s.model.ties(), before);
}

TEST_P(Verbs, ThereAndBackIsTheIdentity) {
  Seed s = lm32();
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(s.model.to(cpu));
  const std::string listing = s.model.parameters();
  const Floats before = values(s.model, "embed");
  ASSERT_OK(s.model.to(device_));
  ASSERT_OK(s.model.to(cpu));
  EXPECT_EQ(s.model.parameters(), listing);
  EXPECT_EQ(values(s.model, "embed"), before);
  EXPECT_TRUE(s.model.same_storage("embed", "head").value());
}

TEST_P(Verbs, AWriteIsSeenByBothNames) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  ASSERT_OK(set(s.model, "head", {3, 2}, {2, 0, 0, 2, 2, 2}));
  EXPECT_EQ(values(s.model, "embed"), Floats({2, 0, 0, 2, 2, 2}));
}

TEST_P(Verbs, CloneIsIsomorphicAndIndependent) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Model copy = must(s.model.clone());
  EXPECT_EQ(copy.ties(), s.model.ties());
  ASSERT_OK(set(copy, "embed", {3, 2}, {9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(values(copy, "head"), Floats({9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1}));
}

TEST_P(Verbs, UntieAndTieAgain) {
  Seed s = lm32();
  const std::string tied = s.model.ties();
  ASSERT_OK(s.model.to(device_));
  const uint64_t cost = must(s.model.untie("head"));
  EXPECT_EQ(cost, 24u);
  EXPECT_FALSE(s.model.same_storage("embed", "head").value());
  {
    Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.1f)));
    step(t, s);
    expect_number(loss(t, s), 2.72, {{2.1, "still tied"}});
  }
  ASSERT_OK(set(s.model, "embed", {3, 2}, {1, 0, 0, 1, 1, 1}));
  ASSERT_OK(s.model.tie("embed", "head"));
  EXPECT_TRUE(s.model.same_storage("embed", "head").value());
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.1f)));
  step(t, s);
  expect_number(loss(t, s), 2.1, {{2.72, "untied"}});
}

TEST_P(Verbs, ShapesThatAGraphDoesNotTakeChangeNothing) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  must(s.model.parameter("bias", {7}, Init::ones()));
  ASSERT_OK(s.model.materialize(1));
  const std::string before = s.model.parameters() + s.model.storages();
  const Status swapped = s.model.swap("embed", "bias");
  EXPECT_NE(swapped.message().find("While checking graph \"loss\""), std::string::npos)
      << swapped.message();
  Floats three(6, 1.0f);
  EXPECT_FALSE(s.model.assign("embed", tensor("", {6}, three)).ok());
  EXPECT_EQ(s.model.parameters() + s.model.storages(), before);
}

TEST_P(Verbs, FrozenIsAFlagOfTheStorage) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  ASSERT_OK(s.model.freeze("head"));
  const auto t = Trainer::create(s.model, device_, plain_sgd(0.1f));
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::bad_argument);
  ASSERT_OK(s.model.freeze_storage("embed", false));
  ASSERT_OK(Trainer::create(s.model, device_, plain_sgd(0.1f)).status());
}

TEST_P(Verbs, AMoveInTheMiddleOfTraining) {
  const Device cpu = open_test_device("cpu");
  TrainOptions o;
  o.optimizer.settings["weight_decay"] = 0.1f;
  o.optimizer.settings["decay_all"] = 1;
  o.schedule.learning_rate = 0.1f;
  const auto run = [&](std::vector<Device> places) {
    Seed s = lm32();
    EXPECT_OK(s.model.to(places[0]));
    Trainer t = must(Trainer::create(s.model, places[0], o));
    Floats losses;
    for (const Device& place : places) {
      EXPECT_OK(s.model.to(place));
      losses.push_back(step(t, s).loss);
      EXPECT_TRUE(s.model.same_storage("embed", "head").value());
    }
    losses.push_back(loss(t, s));
    return losses;
  };
  const Floats still = run({cpu, cpu, cpu, cpu, cpu, cpu});
  EXPECT_EQ(still[0], 4);
  EXPECT_LT(still.back(), still[0]);
  const Floats moving = run({cpu, device_, device_, cpu, device_, cpu});
  for (size_t i = 0; i < still.size(); ++i) {
    expect_number(moving[i], still[i], {}, 1e-5);
  }
}

}  // namespace
}  // namespace bowline::test
