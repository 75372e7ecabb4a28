// Storages in 16 bits, plans that compute in 16 bits, masters and loss scales: the numbers of the recipes, on every device.

#include "core/float16.h"
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

uint16_t bf16_bits(float x) { return from_f32<bf16>(x).bits; }

// Values of a bf16 parameter.
Floats short_values(const Model& model, std::string_view name, size_t n) {
  std::vector<uint16_t> bits(n);
  const int64_t dims[] = {static_cast<int64_t>(n)};
  EXPECT_OK(model.get_value(name, {"", DType::bf16, dims, bits.data()}));
  Floats out;
  for (const uint16_t b : bits) {
    out.push_back(to_f32(bf16{b}));
  }
  return out;
}

// The f32 row of a role that belongs to storage 0.
Floats row_of(const Model& model, StorageRole role, uint32_t slot = 0) {
  const ModelInfo info = must(model.describe());
  for (const StorageInfo& row : info.storages) {
    if (row.role == role && row.owner == 0 && row.slot == slot && !row.empty) {
      EXPECT_EQ(row.dtype, DType::f32);
      const auto bytes = must(model.storage_bytes(row.tie));
      Floats out(bytes.size() / sizeof(float));
      std::memcpy(out.data(), bytes.data(), bytes.size());
      return out;
    }
  }
  ADD_FAILURE() << "Storage 0 has no such row.";
  return {0};
}

// L = theta, in bf16.
Model theta_model() {
  Model m;
  const Parameter theta =
      must(m.parameter("theta", {1}, Init::ones(), StorageRole::weight, DType::bf16));
  GraphBuilder g(m, "loss");
  g.output("loss", g.op("ReduceSum", {g.parameter(theta)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

void run_steps(Trainer& t, int n) {
  const std::span<const Tensor> batches[] = {{}};
  for (int i = 0; i < n; ++i) {
    EXPECT_FALSE(must(t.step(batches)).skipped);
  }
}

// MASTER, areal-project/AReaL PR#1369: an update in bf16 loses every step that is smaller than half of its spacing.
TEST_P(Precision, TheUpdateIsMadeInTheMaster) {
  Model m = theta_model();
  ASSERT_OK(m.to(device_));
  Trainer t = must(Trainer::create(m, device_, plain_sgd(0.001f)));
  run_steps(t, 100);
  expect_number(row_of(m, StorageRole::master)[0], 0.9000013, {{1.0, "updated in bf16"}});
  expect_number(short_values(m, "theta", 1)[0], 0.8984375, {{1.0, "updated in bf16"}}, 0);
}

// MASTER resume, TensorAuto/OpenTau#185: masters that a checkpoint leaves out are rebuilt from bf16.
TEST_P(Precision, ACheckpointHoldsTheMaster) {
  const std::string path = file_of("master");
  uint32_t bits = 0;
  {
    Model m = theta_model();
    ASSERT_OK(m.to(device_));
    Trainer t = must(Trainer::create(m, device_, plain_sgd(0.001f)));
    run_steps(t, 1);
    ASSERT_OK(t.save(path, {}));
  }
  Model m = must(Model::open(path));
  ASSERT_OK(m.to(device_));
  TrainOptions o = plain_sgd(0.001f);
  o.start = TrainStart::continue_;
  Trainer t = must(Trainer::create(m, device_, o));
  float master = row_of(m, StorageRole::master)[0];
  std::memcpy(&bits, &master, sizeof(bits));
  EXPECT_EQ(bits, 0x3f7fbe77u);
  run_steps(t, 1);
  EXPECT_NEAR(row_of(m, StorageRole::master)[0], 0.998, 1e-6);
  ASSERT_TRUE(t.resume(path).ok());
  master = row_of(m, StorageRole::master)[0];
  std::memcpy(&bits, &master, sizeof(bits));
  EXPECT_EQ(bits, 0x3f7fbe77u) << "resumed";
  run_steps(t, 1);
  EXPECT_NEAR(row_of(m, StorageRole::master)[0], 0.998, 1e-6) << "resumed";
  std::remove(path.c_str());
}

// Who writes a storage while it is trained means the values that it writes.
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

// A snapshot or checkpoint of before the first step, and one of after a write, hold the masters that the next step makes.
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

// Nor does a master outlive a write that no Trainer saw: of a frozen storage, and of a checkpoint that was opened.
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
  o.start = TrainStart::continue_;
  Trainer u = must(Trainer::create(opened, device_, o));
  run_steps(u, 1);
  EXPECT_NEAR(row_of(opened, StorageRole::master)[0], 3.999, 1e-6) << "opened";
  std::remove(path.c_str());
}

// OPTSTATE, pytorch#43706: f32 state of 16-bit parameters is restored through 16 bits.
TEST_P(Precision, MomentsOfShortStoragesStayF32) {
  const std::string path = file_of("moments");
  Model m = theta_model();
  ASSERT_OK(m.to(device_));
  TrainOptions o;
  o.schedule.learning_rate = 0.001f;
  Trainer t = must(Trainer::create(m, device_, o));
  run_steps(t, 3);
  const Floats before = row_of(m, StorageRole::moment, 1);
  EXPECT_NE(before[0], to_f32(from_f32<bf16>(before[0]))) << "the number proves nothing";
  ASSERT_OK(t.save(path, {}));
  run_steps(t, 2);
  ASSERT_TRUE(t.resume(path).ok());
  EXPECT_EQ(row_of(m, StorageRole::moment, 1), before);
  std::remove(path.c_str());
}

// ACC (pytorch#60022 and others): what many uses contribute is summed in f32.
TEST_P(Precision, ContributionsOfManyUsesAreSummedInF32) {
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones(), StorageRole::weight, DType::bf16));
  GraphBuilder g(m, "loss");
  const Value one = g.input("one", DType::bf16, {1});
  const Value small = g.input("small", DType::bf16, {1});
  Value total = g.op("Mul", {g.parameter(w), one});
  for (int i = 0; i < 256; ++i) {
    total = g.op("Add", {total, g.op("Mul", {g.parameter(w), small})});
  }
  g.output("loss", g.op("ReduceSum", {total}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  TrainOptions o = plain_sgd(0);
  o.accumulation = 2;
  Trainer t = must(Trainer::create(m, device_, o));
  uint16_t one_bits = bf16_bits(1), small_bits = bf16_bits(0x1p-8f);
  const int64_t dims[] = {1};
  const Tensor batch[] = {{"one", DType::bf16, dims, &one_bits},
                          {"small", DType::bf16, dims, &small_bits}};
  ASSERT_TRUE(t.micro_step(batch).ok());
  Floats gradient(1);
  ASSERT_OK(t.gradient("w", tensor("", {1}, gradient)));
  expect_number(gradient[0], 2.0, {{1.0, "summed in bf16"}}, 0);
}

// CASTCACHE, NVIDIA/apex PR#132: a cached cast cannot see that the storage was written.
TEST_P(Precision, AWorkingCopyFollowsItsStorage) {
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones()));
  GraphBuilder g(m, "forward");
  const Value two = g.input("two", DType::f32, {1});
  g.output("y", g.op("Mul", {g.parameter(w), two}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  const BoundEntryPoint entry[] = {{"forward", {}, DType::bf16}};
  Session s = must(Session::create(m, device_, entry));
  Floats in = {2}, y = {0};
  const Tensor inputs[] = {tensor("two", {1}, in)};
  const Tensor outputs[] = {tensor("y", {1}, y)};
  ASSERT_OK(s.run(inputs, outputs));
  EXPECT_EQ(y[0], 2);
  ASSERT_OK(s.run(inputs, outputs));
  EXPECT_EQ(s.counters().refreshes, 1u) << "once per version";
  ASSERT_OK(set(m, "w", {1}, {1.5f}));
  ASSERT_OK(s.run(inputs, outputs));
  expect_number(y[0], 3, {{2, "the copy is stale"}}, 0);
  EXPECT_EQ(s.counters().refreshes, 2u);
}

// SCALAR2 scale, accelerate PR#115: the wrapper and the optimizer both unscale.
TEST_P(Precision, TheLossScaleIsUndoneOnce) {
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.1f);
  o.precision.loss_scale = 1024;
  o.clip_norm = 1000;
  Trainer t = must(Trainer::create(s.model, device_, o));
  const StepReport r = step(t, s);
  EXPECT_EQ(r.loss_scale, 1024);
  expect_number(r.loss, 6, {{6144, "the loss is scaled"}});
  expect_number(r.grad_norm, 6, {{6144, "not unscaled"}, {0.00586, "unscaled twice"}});
  Floats gradient(1);
  ASSERT_OK(t.gradient("a", tensor("", {1}, gradient)));
  expect_number(gradient[0], 6, {{6144, "not unscaled"}});
  expect_number(values(s.model, "b")[0], 0.4, {{-613.4, "not unscaled"}});
}

// f16: 3 * 32768 is infinite; 3 * 16384 is not.
TEST_P(Precision, AnOverflowHalvesTheLossScaleAndSkipsTheStep) {
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.1f);
  o.precision.compute = DType::f16;
  o.precision.growth_steps = 2;
  o.on_nonfinite = OnNonFinite::stop;  // what another scale mends is no reason to stop
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
  // Gradients of numbers that are not finite themselves are no matter of scale.
  s.x[0] = INFINITY;
  const std::vector<Tensor> batch = s.batch();
  const std::span<const Tensor> batches[] = {batch};
  EXPECT_EQ(t.step(batches).status().code(), Code::non_finite);
}

// The scale and its count go on where a checkpoint left them.
TEST_P(Precision, ACheckpointHoldsTheLossScale) {
  const std::string path = file_of("scale");
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = plain_sgd(0.001f);
  o.precision.compute = DType::f16;
  o.precision.growth_steps = 2;
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

// torch_xla#3718: a cast after the construction left casts behind in the graph.
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

// y = x Wᵀ and L = sum(y), summed in bf16 or in f32.
Model linear(DType dtype, bool wide_sum) {
  Model m;
  const Parameter w = must(m.parameter("w", {66, 44}, Init::ones(), StorageRole::weight, dtype));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", dtype, {22, 44});
  const Value y = g.op("MatMul", {x, g.parameter(w)}, {{"transpose_b", true}});
  g.output("y", y);
  g.output("loss", g.op("ReduceSum", {wide_sum ? g.op("Cast", {y}, {{"to", "f32"}}) : y}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

// LIN, pytorch/xla#3718: the gradient of a weight that was cast after it was made goes to f32 and back, in two temporaries.
TEST_P(Precision, AGradientIn16BitsMakesNoTemporariesInF32) {
  std::vector<uint16_t> ones(22 * 44, bf16_bits(1));
  const int64_t dims[] = {22, 44}, y_dims[] = {22, 66};
  const Tensor batch[] = {{"x", DType::bf16, dims, ones.data()}};
  const std::span<const Tensor> batches[] = {batch};
  std::string listing_of_cast;
  for (const bool built : {false, true}) {
    Model m = linear(built ? DType::bf16 : DType::f32, false);
    EXPECT_EQ(must(m.cast(DType::bf16)).storages, built ? 0u : 1u);
    ASSERT_OK(m.to(device_));
    Session s = must(Session::create(m, device_, "loss", {}));
    std::vector<uint16_t> y(22 * 66), loss(1);
    const Tensor outputs[] = {{"y", DType::bf16, y_dims, y.data()},
                              {"loss", DType::bf16, {}, loss.data()}};
    ASSERT_OK(s.run(batch, outputs));
    EXPECT_EQ(y, std::vector<uint16_t>(22 * 66, bf16_bits(44)));
    EXPECT_EQ(loss[0], bf16_bits(64000)) << "63888, rounded";
    Trainer t = must(Trainer::create(m, device_, plain_sgd(0)));
    EXPECT_EQ(must(t.step(batches)).loss, 64000);
    Floats gradient(66 * 44);
    ASSERT_OK(t.gradient("w", tensor("", {66, 44}, gradient)));
    EXPECT_EQ(gradient, Floats(66 * 44, 22));
    // The seed, its cast and reshape, the gradients of the sum and of the product; the last goes into the row.
    const std::string backward = must(t.listing("backward"));
    EXPECT_LE(std::ranges::count(backward, '\n'), 6) << backward;
    for (size_t at = backward.find("f32["); at != backward.npos;
         at = backward.find("f32[", at + 1)) {
      const std::string line = backward.substr(at, backward.find('\n', at) - at);
      EXPECT_TRUE(line.starts_with("f32[] ") || line.starts_with("f32[66,44] = AccumulateGrad("))
          << backward;
    }
    if (built) {
      EXPECT_EQ(listings(t), listing_of_cast);
    }
    listing_of_cast = listings(t);
  }
  Model m = linear(DType::bf16, true);
  ASSERT_OK(m.to(device_));
  Trainer t = must(Trainer::create(m, device_, plain_sgd(0)));
  EXPECT_EQ(must(t.step(batches)).loss, 63888) << "summed in f32";
}

// The least number of casts for (storage, compute, gradient, master).
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
    // The loss alone is f32: one cast on its way, and one of its gradient.
    Model m = network(DType::bf16);
    ASSERT_OK(m.to(device_));
    Trainer t = must(Trainer::create(m, device_, o));
    EXPECT_EQ(casts_in(must(t.listing("forward"))), 1u);
    EXPECT_EQ(casts_in(must(t.listing("backward"))), 1u);
    EXPECT_EQ(casts_in(must(t.listing("update"))), 0u);
  }
  {
    // Two inputs, and the squares in front of the mean; their gradient back. Storages have copies, no nodes; their gradients
    // go into f32 rows as they are.
    Model m = network(DType::f32);
    ASSERT_OK(m.to(device_));
    o.precision.compute = DType::bf16;
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
    EXPECT_EQ(t.counters().refreshes, 6u) << "one per version";
  }
}

// Training in 16 bits goes where training in f32 goes.
TEST_P(Precision, ShortNumbersLearnToo) {
  const auto losses = [&](DType storage, std::optional<DType> compute) {
    Model m = network(DType::f32);
    must(m.cast(storage));
    EXPECT_OK(m.to(device_));
    TrainOptions o;
    o.schedule.learning_rate = 0.02f;
    o.dims = {{"batch", 4}};
    o.precision.compute = compute;
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

// BN trip: what has a floor is not rounded, on the way there and back.
TEST(Cast, RespectsTheFloorOfARole) {
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones()));
  must(m.parameter("mean", {1}, Init::zeros(), StorageRole::running_statistic));
  must(m.parameter("var", {1}, Init::zeros(), StorageRole::running_statistic));
  must(m.tied_parameter("also w", w));
  EXPECT_FALSE(
      m.parameter("short", {1}, Init::zeros(), StorageRole::running_statistic, DType::f16).ok());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(set(m, "mean", {1}, {0.1f}));
  ASSERT_OK(set(m, "var", {1}, {1e-8f}));
  const CastReport report = must(m.cast(DType::f16));
  EXPECT_EQ(report.storages, 1u);
  EXPECT_EQ(report.kept.size(), 2u);
  EXPECT_EQ(must(m.describe()).storages[0].dtype, DType::f16);
  EXPECT_TRUE(must(m.same_storage("w", "also w")));
  must(m.cast(DType::f32));
  expect_number(values(m, "mean")[0], 0.1f, {{0.09997559, "rounded to f16"}}, 0);
  EXPECT_EQ(values(m, "var")[0], 1e-8f);
  EXPECT_EQ(values(m, "w")[0], 1);
}

}  // namespace
}  // namespace bowline::test
