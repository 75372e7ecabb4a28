// Ties survive every verb, on every device: the listing of the partition stays, and so do the numbers.
#include <filesystem>

#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Verbs = OnDevice;
BOWLINE_ON_ALL_DEVICES(Verbs);

std::string scratch_file(const std::string& name) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string file = testing::TempDir() + test_name(info->name()) + "_" + name;
  return file;
}

uint64_t header_and_tables(const std::string& path, const Model& model) {
  return std::filesystem::file_size(path) - weight_bytes(model);
}

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

TEST_P(Verbs, SaveAndLoadKeepTheTie) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  const std::string path = scratch_file("lm32.bowline");
  ASSERT_OK(s.model.save(path));
  Model loaded = must(Model::open(path));
  EXPECT_EQ(loaded.ties(), s.model.ties());
  EXPECT_EQ(loaded.parameters(), s.model.parameters());
  ASSERT_OK(loaded.to(device_));
  Seed again;
  again.model = std::move(loaded);
  again.shape = s.shape;
  again.ids = s.ids;
  Trainer t = must(Trainer::create(again.model, device_, plain_sgd(0.1f)));
  step(t, again);
  expect_number(loss(t, again), 2.1, {{2.72, "untied"}});
  std::filesystem::remove(path);
}

TEST_P(Verbs, LoadByCopyAssignAndPartly) {
  Seed source = lm32();
  ASSERT_OK(set(source.model, "embed", {3, 2}, {4, 1, 2, 3, 5, 6}));
  const std::string path = scratch_file("values.bowline");
  ASSERT_OK(source.model.save(path));
  for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
    Seed s = lm32();
    ASSERT_OK(s.model.to(device_));
    Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.1f)));
    const std::string ties = s.model.ties();
    ASSERT_OK(s.model.load(path, mode).status());
    EXPECT_EQ(s.model.ties(), ties);
    EXPECT_EQ(values(s.model, "head"), Floats({4, 1, 2, 3, 5, 6}));
    EXPECT_EQ(values(s.model, "embed"), Floats({4, 1, 2, 3, 5, 6}));
    // The trainer is older than the load and sees the new values.
    expect_number(loss(t, s), 4 * 5 + 1 * 6 + 2 * 5 + 3 * 6 + 25 + 36);
  }
  std::filesystem::remove(path);
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

// Swapping with the value that a new parameter has, in the middle of training (recipe "Extension points in nn.Module").
TEST_P(Verbs, AssignedValuesAreWhatTheOptimizerUpdates) {
  Model model;
  const Parameter w = must(model.parameter("w", {1, 2}, Init::zeros()));
  GraphBuilder g(model, "loss");
  const Value x = g.input("x", DType::f32, {1, 2});
  g.output("loss", g.op("ReduceSum", {g.op("Mul", {x, g.parameter(w)})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(set(model, "w", {1, 2}, {1, 2}));
  ASSERT_OK(model.to(device_));
  Trainer t = must(Trainer::create(model, device_, plain_sgd(0.1f)));
  Floats doubled = {2, 4};
  ASSERT_OK(model.assign("w", tensor("", {1, 2}, doubled)));
  Floats ones = {1, 1};
  const Tensor batch = tensor("x", {1, 2}, ones);
  const std::span<const Tensor> batches[] = {{&batch, 1}};
  must(t.step(batches));
  const Floats after = values(model, "w");
  expect_number(after[0], 1.9, {{2, "the step went elsewhere"}});
  expect_number(after[1], 3.9, {{4, "the step went elsewhere"}});
}

// transformers PR#43207: the head and its bias follow the embedding.
TEST_P(Verbs, ResizedRowsAreThoseOfEveryUse) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Session session = must(Session::create(s.model, device_, "loss", {}));
  ASSERT_OK(s.model.resize("embed", 4));
  ASSERT_OK(s.model.materialize(9));
  Floats logits(4), sum(1);
  const std::vector<Tensor> outputs = {tensor("loss", {}, sum), tensor("logits", {1, 4}, logits)};
  ASSERT_OK(session.run(s.batch(), outputs));
  EXPECT_EQ(logits, Floats({1, 1, 2, 0}));
  EXPECT_EQ(values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1, 0, 0}));
  EXPECT_TRUE(s.model.same_storage("embed", "head").value());
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.1f)));
  ASSERT_OK(s.model.resize("head", 3));
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
  o.optimizer.weight_decay = 0.1f;
  o.optimizer.decay_all = true;
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

TEST_P(Verbs, FileSizesCountStorages) {
  Seed ut = universal(12, 64);
  EXPECT_EQ(weight_bytes(ut.model), 16384u);
  const std::string path = scratch_file("ut.bowline");
  ASSERT_OK(ut.model.to(device_));
  ASSERT_OK(ut.model.save(path));
  EXPECT_LT(std::filesystem::file_size(path), 2u * 16384u) << "196608 bytes would be 12 copies";

  Model lm;
  const Dims shape = {1000, 64};
  const Parameter e = must(lm.parameter("embed", shape, Init::normal(0.02f)));
  must(lm.tied_parameter("head", e));
  ASSERT_OK(lm.materialize(3));
  ASSERT_OK(lm.to(device_));
  EXPECT_EQ(weight_bytes(lm), 256000u);
  ASSERT_OK(lm.save(path));
  EXPECT_LT(header_and_tables(path, lm), 8192u) << "512000 payload bytes would be two copies";
  EXPECT_EQ(must(Model::open(path)).ties(), lm.ties());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bowline::test
