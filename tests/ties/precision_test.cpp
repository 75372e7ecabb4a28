// Storages in 16 bits, plans that compute in 16 bits, masters and loss scales: the values of the
// recipes on every device.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Precision = OnDevice;
BOWLINE_ON_ALL_DEVICES(Precision);

std::string file_of(std::string_view stem) {
  return testing::TempDir() + std::string(stem) + "_" +
         test_name(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".bowline";
}

// A write to a storage during training replaces the values of its master, too.
TEST_P(Precision, AWrittenStorageGivesItsMasterNewValues) {
  Model m = theta_model();
  ASSERT_OK(m.to(device_));
  Trainer t = must(Trainer::create(m, device_, plain_sgd(0.001f)));
  run_steps(t, 1);
  ASSERT_OK(t.snapshot());
  uint16_t two = bf16_bits(2);
  const int64_t one[] = {1};
  ASSERT_OK(m.set_value("theta", {"", DType::bf16, one, &two}));
  run_steps(t, 1);
  EXPECT_NEAR(row_of(m, StorageRole::master)[0], 1.999, 1e-6);
  ASSERT_OK(t.rollback());
  run_steps(t, 1);
  EXPECT_NEAR(row_of(m, StorageRole::master)[0], 0.998, 1e-6);
}

// Snapshots and checkpoints contain the masters even before the next step creates them: before the
// first step, and after a write.
TEST_P(Precision, ASnapshotHoldsMastersThatNoStepMade) {
  const std::string path = file_of("unstepped");
  const int64_t one[] = {1};
  for (const bool written : {false, true}) {
    Model m = theta_model();
    ASSERT_OK(m.to(device_));
    Trainer t = must(Trainer::create(m, device_, plain_sgd(0.001f)));
    uint16_t four = bf16_bits(4);
    if (written) {
      run_steps(t, 1);
      ASSERT_OK(m.set_value("theta", {"", DType::bf16, one, &four}));
    }
    const float begin = written ? 4 : 1;
    ASSERT_OK(t.snapshot());
    ASSERT_OK(t.save(path, {}));
    run_steps(t, 2);
    ASSERT_OK(t.rollback());
    EXPECT_EQ(row_of(m, StorageRole::master)[0], begin) << "rolled back";
    run_steps(t, 1);
    EXPECT_NEAR(row_of(m, StorageRole::master)[0], begin - 0.001, 1e-6) << "rolled back";
    ASSERT_TRUE(t.resume(path).ok());
    EXPECT_EQ(row_of(m, StorageRole::master)[0], begin) << "resumed";
    run_steps(t, 1);
    EXPECT_NEAR(row_of(m, StorageRole::master)[0], begin - 0.001, 1e-6) << "resumed";
  }
  std::remove(path.c_str());
}

// A write that no Trainer sees also replaces the master: to a frozen storage, and to a checkpoint
// that was opened.
TEST_P(Precision, AMasterGivesWayToAWrite) {
  const std::string path = file_of("written");
  const int64_t one[] = {1};
  uint16_t four = bf16_bits(4);
  Model m;
  const auto bf16 = [&](const char* name) {
    return must(m.parameter(name, {1}, Init::ones(), StorageRole::weight, DType::bf16));
  };
  const Parameter theta = bf16("theta"), other = bf16("other");
  GraphBuilder g(m, "loss");
  g.output("loss", g.op("ReduceSum", {g.op("Add", {g.parameter(theta), g.parameter(other)})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  Trainer t = must(Trainer::create(m, device_, plain_sgd(0.001f)));
  run_steps(t, 1);
  ASSERT_OK(t.save(path, {}));
  ASSERT_OK(m.freeze("theta"));
  ASSERT_OK(m.set_value("theta", {"", DType::bf16, one, &four}));
  run_steps(t, 1);
  ASSERT_OK(m.freeze("theta", false));
  run_steps(t, 1);
  EXPECT_NEAR(row_of(m, StorageRole::master)[0], 3.999, 1e-6) << "thawed";

  Model opened = must(Model::open(path));
  ASSERT_OK(opened.set_value("theta", {"", DType::bf16, one, &four}));
  ASSERT_OK(opened.to(device_));
  TrainOptions o = plain_sgd(0.001f);
  o.start = TrainStart::from_checkpoint;
  Trainer u = must(Trainer::create(opened, device_, o));
  run_steps(u, 1);
  EXPECT_NEAR(row_of(opened, StorageRole::master)[0], 3.999, 1e-6) << "opened";
  std::remove(path.c_str());
}

// f16: 3 * 32768 is infinite; 3 * 16384 is not.
TEST_P(Precision, AnOverflowHalvesTheLossScaleAndSkipsTheStep) {
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.1f);
  o.precision.compute_dtype = DType::f16;
  o.precision.growth_interval = 2;
  o.on_nonfinite =
      OnNonFinite::stop;  // a smaller scale removes the overflow, so training must not stop
  Trainer t = must(Trainer::create(s.model, device_, o));
  StepReport r = step(t, s);
  EXPECT_TRUE(r.skipped);
  EXPECT_EQ(r.loss_scale, 32768);
  EXPECT_EQ(values(s.model, "a")[0], 1);
  r = step(t, s);
  EXPECT_FALSE(r.skipped);
  EXPECT_EQ(r.loss_scale, 16384);
  expect_number(r.grad_norm, 6);
  expect_number(values(s.model, "a")[0], 0.4, {}, 1e-3);
  step(t, s);
  EXPECT_TRUE(step(t, s).skipped) << "the scale doubles after two steps, and overflows again";
  // A smaller scale does not help if the values themselves are not finite.
  s.x[0] = INFINITY;
  const std::vector<Tensor> batch = s.batch();
  const std::span<const Tensor> batches[] = {batch};
  EXPECT_EQ(t.step(batches).status().code(), Code::non_finite);
}

// A checkpoint keeps the scale and its step count.
TEST_P(Precision, ACheckpointHoldsTheLossScale) {
  const std::string path = file_of("scale");
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.001f);
  o.precision.compute_dtype = DType::f16;
  o.precision.growth_interval = 2;
  Trainer t = must(Trainer::create(s.model, device_, o));
  for (int i = 0; i < 2; ++i) {
    step(t, s);
  }
  ASSERT_OK(t.save(path, {}));
  EXPECT_EQ(step(t, s).loss_scale, 16384);
  EXPECT_EQ(step(t, s).loss_scale, 32768);
  ASSERT_TRUE(t.resume(path).ok());
  EXPECT_EQ(step(t, s).loss_scale, 16384);
  EXPECT_EQ(step(t, s).loss_scale, 32768) << "one step was counted before the checkpoint";
  std::remove(path.c_str());
}

// A two-layer network in `dtype`.
Model network(DType dtype) {
  Model m;
  const auto weight = [&](std::string_view name, const Dims& dims) {
    return must(m.parameter(name, dims, Init::normal(0.3f), StorageRole::weight, dtype));
  };
  const Parameter w1 = weight("w1", {5, 7}), b1 = weight("b1", {7}), w2 = weight("w2", {7, 3});
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", dtype, {"batch", 5});
  const Value t = g.input("t", dtype, {"batch", 3});
  const Value h =
      g.op("Relu", {g.op("Add", {g.op("MatMul", {x, g.parameter(w1)}), g.parameter(b1)})});
  const Value y = g.op("MatMul", {h, g.parameter(w2)});
  g.output("loss", g.op("ReduceMean", {g.op("Square", {g.op("Sub", {y, t})})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(3));
  return m;
}

std::string listings(Trainer& t) {
  return must(t.listing("forward")) + "--\n" + must(t.listing("backward")) + "--\n" +
         must(t.listing("update"));
}

// torch_xla#3718: a cast after the construction left cast nodes in the graph.
TEST_P(Precision, ACastModelIsTheModelThatIsBuiltInTheDtype) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string path = file_of("cast");
    ASSERT_OK(network(DType::f32).save(path));
    Model cast = must(Model::open(path));
    std::remove(path.c_str());
    const CastReport report = must(cast.cast(dtype));
    EXPECT_EQ(report.storages, 3u);
    EXPECT_EQ(report.bytes_before, 2 * report.bytes_after);
    EXPECT_TRUE(report.kept.empty());
    Model built = network(dtype);
    EXPECT_EQ(cast.parameters(), built.parameters());
    ASSERT_OK(cast.to(device_));
    ASSERT_OK(built.to(device_));
    for (const char* name : {"w1", "b1", "w2"}) {
      const ModelInfo a = must(cast.describe());
      const uint32_t tie = a.parameters[*name == 'b' ? 1 : name[1] == '1' ? 0 : 2].tie;
      EXPECT_EQ(must(cast.storage_bytes(tie)), must(built.storage_bytes(tie))) << name;
    }
    TrainOptions o = plain_sgd(0.1f);
    o.dims = {{"batch", 4}};
    Trainer a = must(Trainer::create(cast, device_, o));
    Trainer b = must(Trainer::create(built, device_, o));
    EXPECT_EQ(listings(a), listings(b));
  }
}

uint64_t casts_in(const std::string& listing) {
  uint64_t count = 0;
  for (size_t at = listing.find(" Cast("); at != listing.npos;
       at = listing.find(" Cast(", at + 1)) {
    ++count;
  }
  return count;
}

// The smallest number of casts for each (storage, compute, gradient, master).
TEST_P(Precision, ThereAreNoMoreCastsThanNeeded) {
  TrainOptions o = plain_sgd(0.1f);
  o.dims = {{"batch", 4}};
  {
    Model m = network(DType::f32);
    ASSERT_OK(m.to(device_));
    Trainer t = must(Trainer::create(m, device_, o));
    EXPECT_EQ(casts_in(listings(t)), 0u) << "f32 throughout";
  }
  {
    // Only the loss is f32: one cast to it, and one cast of its gradient.
    Model m = network(DType::bf16);
    ASSERT_OK(m.to(device_));
    Trainer t = must(Trainer::create(m, device_, o));
    EXPECT_EQ(casts_in(must(t.listing("forward"))), 1u);
    EXPECT_EQ(casts_in(must(t.listing("backward"))), 1u);
    EXPECT_EQ(casts_in(must(t.listing("update"))), 0u);
  }
  {
    // Casts of two inputs, of the squares before the mean, and of their gradient. Storages need no
    // nodes because they have copies. Their gradients are added to f32 rows without a cast.
    Model m = network(DType::f32);
    ASSERT_OK(m.to(device_));
    o.precision.compute_dtype = DType::bf16;
    Trainer t = must(Trainer::create(m, device_, o));
    EXPECT_EQ(casts_in(must(t.listing("forward"))), 3u) << must(t.listing("forward"));
    EXPECT_EQ(casts_in(must(t.listing("backward"))), 1u) << must(t.listing("backward"));
    EXPECT_EQ(casts_in(must(t.listing("update"))), 0u);
    Floats x(20, 0.5f), y(12, 0.25f);
    const Tensor batch[] = {tensor("x", {4, 5}, x), tensor("t", {4, 3}, y)};
    const std::span<const Tensor> batches[] = {batch};
    ASSERT_TRUE(t.step(batches).ok());
    EXPECT_EQ(t.counters().refreshes, 3u) << "one copy per storage";
    ASSERT_TRUE(t.step(batches).ok());
    EXPECT_EQ(t.counters().refreshes, 3u) << "the optimizer writes them with the weights";
  }
}

// Training in 16 bits converges like training in f32.
TEST_P(Precision, ShortNumbersLearnToo) {
  const auto losses = [&](DType storage, std::optional<DType> compute) {
    Model m = network(DType::f32);
    must(m.cast(storage));
    EXPECT_OK(m.to(device_));
    TrainOptions o;
    o.schedule.learning_rate = 0.02f;
    o.dims = {{"batch", 4}};
    o.precision.compute_dtype = compute;
    Trainer t = must(Trainer::create(m, device_, o));
    Floats x, y;
    for (int i = 0; i < 20; ++i) {
      x.push_back(static_cast<float>(i * 7 % 11) * 0.125f - 0.5f);
    }
    for (int i = 0; i < 12; ++i) {
      y.push_back(static_cast<float>(i * 5 % 7) * 0.25f - 0.75f);
    }
    std::vector<uint16_t> xs, ys;
    for (const float v : x) {
      xs.push_back(static_cast<uint16_t>(stored_bits(storage, v)));
    }
    for (const float v : y) {
      ys.push_back(static_cast<uint16_t>(stored_bits(storage, v)));
    }
    const int64_t x_dims[] = {4, 5}, y_dims[] = {4, 3};
    const bool wide = storage == DType::f32;
    const Tensor batch[] = {
        {"x", storage, x_dims, wide ? static_cast<void*>(x.data()) : xs.data()},
        {"t", storage, y_dims, wide ? static_cast<void*>(y.data()) : ys.data()}};
    const std::span<const Tensor> batches[] = {batch};
    Floats out;
    for (int i = 0; i < 60; ++i) {
      out.push_back(must(t.step(batches)).loss);
    }
    return out;
  };
  const Floats right = losses(DType::f32, {});
  EXPECT_LT(right.back(), 0.3f * right.front());
  const auto expect_near = [&](const Floats& other, float slack, const char* what) {
    EXPECT_NEAR(other.front(), right.front(), slack * right.front()) << what;
    EXPECT_NEAR(other.back(), right.back(), 0.2f * right.front()) << what;
  };
  expect_near(losses(DType::f32, DType::bf16), 0.05f, "f32 storages, bf16 compute");
  expect_near(losses(DType::bf16, {}), 0.05f, "bf16 storages");
  expect_near(losses(DType::f16, {}), 0.01f, "f16 storages");
  expect_near(losses(DType::f32, DType::f16), 0.01f, "f32 storages, f16 compute");
}

TEST(Cast, RefusesWhatCannotBe) {
  Seed s = scalar2(3);
  EXPECT_EQ(s.model.cast(DType::i32).status().code(), Code::bad_argument);
  EXPECT_EQ(s.model.cast(DType::bf16, "c*").status().code(), Code::bad_argument);
  const std::string before = s.model.storages();
  const Result<CastReport> mixed = s.model.cast(DType::bf16, "a");
  ASSERT_FALSE(mixed.ok());
  EXPECT_NE(mixed.status().message().find("Mul"), std::string::npos) << mixed.status().message();
  EXPECT_EQ(s.model.storages(), before) << "a refused cast changes nothing";
  EXPECT_EQ(must(s.model.cast(DType::f32)).storages, 0u);
  EXPECT_EQ(s.model.storages(), before) << "nor does one to what the storages are";
}

}  // namespace
}  // namespace bowline::test
