// Models whose storages are on two devices.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// "encode" reads embed and its tie; "decode" reads head; "both" reads all.
Model autoencoder() {
  Model m;
  const Parameter embed = must(m.parameter("embed.weight", {2, 3}, Init::normal(1)));
  const Parameter tied = must(m.tied_parameter("other.name", embed));
  const Parameter head = must(m.parameter("head.weight", {3, 2}, Init::normal(1)));
  const auto encode = [&](GraphBuilder& g, Value x) {
    return g.op("Tanh", {g.op("Add", {g.op("MatMul", {x, g.parameter(embed)}),
                                      g.op("MatMul", {x, g.parameter(tied)})})});
  };
  {
    GraphBuilder g(m, "encode");
    const Value y = encode(g, g.input("x", DType::f32, {1, 2}));
    g.output("y", y);
    g.output("loss", g.op("ReduceSum", {g.op("Mul", {y, y})}));
    EXPECT_OK(g.finish());
  }
  {
    GraphBuilder g(m, "decode");
    g.output("y", g.op("MatMul", {g.input("x", DType::f32, {1, 3}), g.parameter(head)}));
    EXPECT_OK(g.finish());
  }
  {
    GraphBuilder g(m, "both");
    g.output("y", g.op("MatMul", {encode(g, g.input("x", DType::f32, {1, 2})), g.parameter(head)}));
    EXPECT_OK(g.finish());
  }
  EXPECT_OK(m.materialize(7));
  return m;
}

Floats run(Session& session, Floats x, size_t outputs) {
  Floats y(outputs);
  const Tensor in[] = {tensor("x", {1, static_cast<int64_t>(x.size())}, x)};
  const Tensor out[] = {tensor("y", {1, static_cast<int64_t>(outputs)}, y)};
  EXPECT_OK(session.run(in, out));
  return y;
}

Floats run(const Model& model, const Device& device, std::string_view entry, Floats x,
           size_t outputs) {
  Session s = must(Session::create(model, device, entry, {}));
  return run(s, std::move(x), outputs);
}

std::string place(const Model& model, size_t row) {
  std::istringstream lines(model.storages());
  std::string line;
  for (size_t i = 0; i <= row; ++i) {
    std::getline(lines, line);
  }
  return line.substr(line.rfind(' ') + 1);
}

// The second device is the CPU; it is opened a second time if the first device is the CPU.
class TwoDevices : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    cpu_ = wrap("home", open_cpu());
    model_ = autoencoder();
    EXPECT_OK(model_.to(cpu_));
    encoded_ = run(model_, cpu_, "encode", {1, -2}, 3);
    decoded_ = run(model_, cpu_, "decode", {1, -2, 3}, 2);
    EXPECT_OK(model_.to(device_, "head.*"));
  }
  void expect_parts(const Model& model) {
    EXPECT_EQ(run(model, cpu_, "encode", {1, -2}, 3), encoded_);
    const Floats decoded = run(model, device_, "decode", {1, -2, 3}, 2);
    for (size_t i = 0; i < decoded.size(); ++i) {
      EXPECT_NEAR(decoded[i], decoded_[i], 1e-5);
    }
  }
  Device cpu_ = Internals::device(nullptr);
  Model model_;
  Floats encoded_, decoded_;
};

TEST_P(TwoDevices, EachPartRunsWhereItLies) {
  EXPECT_EQ(place(model_, 0), "home");
  EXPECT_EQ(place(model_, 1), device_.info().name);
  expect_parts(model_);
  // Moving a storage to its own device does nothing.
  const std::string before = model_.storages();
  const uint64_t copies = device_.counters().copies_in;
  ASSERT_OK(model_.to(device_, "head.weight"));
  EXPECT_EQ(model_.storages(), before);
  EXPECT_EQ(device_.counters().copies_in, copies);
}

TEST_P(TwoDevices, ASessionOverBothNamesThem) {
  for (const Device& device : {cpu_, device_}) {
    const Status status = Session::create(model_, device, "both", {}).status();
    EXPECT_EQ(status.code(), Code::bad_argument);
    EXPECT_EQ(status.message(), format("A plan runs on one device, but this plan reads storage 0 "
                                       "(\"embed.weight\") on home and storage 1 (\"head.weight\") "
                                       "on {}. Move both to one device with Model::to().",
                                       device_.info().name));
  }
  const BoundEntryPoint parts[] = {{"encode", {}}, {"decode", {}}};
  EXPECT_EQ(Session::create(model_, cpu_, parts).status().code(), Code::bad_argument)
      << "one session runs on one device";
  EXPECT_EQ(Session::create(model_, cpu_, "decode", {}).status().message(),
            format("The model is not on device home but on {}. Move it with Model::to().",
                   device_.info().name));
  EXPECT_EQ(model_.to(cpu_, "haed*").message(),
            "The pattern \"haed*\" matches none of the 3 parameters.");
}

TEST_P(TwoDevices, ATieMovesAsAWhole) {
  Session s = must(Session::create(model_, cpu_, "encode", {}));
  EXPECT_EQ(run(s, {1, -2}, 3), encoded_);
  ASSERT_OK(model_.to(device_, "other.*"));
  EXPECT_EQ(place(model_, 0), device_.info().name);
  EXPECT_TRUE(must(model_.same_storage("embed.weight", "other.name")));
  // A session moves with the storages that it reads, and both parts are on the same device now.
  const Floats moved = run(s, {1, -2}, 3);
  const Floats all = run(model_, device_, "both", {1, -2}, 2);
  const Floats decoded = run(model_, device_, "decode", moved, 2);
  for (size_t i = 0; i < moved.size(); ++i) {
    EXPECT_NEAR(moved[i], encoded_[i], 1e-5);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_NEAR(all[i], decoded[i], 1e-5);
  }
}

TEST_P(TwoDevices, AreSavedClonedAndJoined) {
  const std::string path = testing::TempDir() + test_name("places " + GetParam());
  ASSERT_OK(model_.save(path));
  Model copy = must(model_.clone());
  EXPECT_EQ(place(copy, 0), "home");
  EXPECT_EQ(place(copy, 1), device_.info().name);
  expect_parts(copy);
  // A clone has separate bytes.
  ASSERT_OK(set(copy, "head.weight", {3, 2}, Floats(6)));
  expect_parts(model_);

  Model opened = must(Model::open(path));
  for (const char* name : {"embed.weight", "other.name", "head.weight"}) {
    EXPECT_EQ(values(opened, name), values(model_, name)) << name;
  }
  // Loaded and untied storages stay on the device of their storage.
  EXPECT_EQ(must(model_.load(path)).storages, 2u);
  ASSERT_EQ(must(model_.untie("other.name")), 24u);
  ASSERT_OK(model_.to(device_, "*"));
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(place(model_, row), device_.info().name);
  }
  ASSERT_OK(model_.to(cpu_));
  EXPECT_EQ(run(model_, cpu_, "encode", {1, -2}, 3), encoded_);
  EXPECT_EQ(run(model_, cpu_, "decode", {1, -2, 3}, 2), decoded_);
}

// Gradients and moments move with their weight during training.
TEST_P(TwoDevices, ATrainedPartMovesWithItsMoments) {
  TrainOptions options;
  options.entry_point = "encode";
  ASSERT_OK(model_.freeze("head.weight"));
  Floats x = {1, -2};
  const Tensor batch[] = {tensor("x", {1, 2}, x)};
  Model stays = must(model_.clone());
  Trainer there = must(Trainer::create(stays, cpu_, options));
  Trainer t = must(Trainer::create(model_, cpu_, options));
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      ASSERT_OK(model_.to(device_, "embed.*"));
    }
    ASSERT_TRUE(must(t.micro_step(batch)).has_value());
    ASSERT_TRUE(must(there.micro_step(batch)).has_value());
  }
  for (size_t row = 2; row < 5; ++row) {
    EXPECT_EQ(place(model_, row), device_.info().name);
    EXPECT_EQ(place(stays, row), "home");
  }
  const Floats moved = values(model_, "embed.weight");
  const Floats expected = values(stays, "embed.weight");
  for (size_t i = 0; i < moved.size(); ++i) {
    EXPECT_NEAR(moved[i], expected[i], 1e-5);
  }
}

// Gradients and moments are on the device of the weights.
TEST_P(TwoDevices, APartIsTrainedWhereItLies) {
  ASSERT_OK(model_.to(device_, "embed.*"));
  ASSERT_OK(model_.to(cpu_, "head.*"));
  ASSERT_OK(model_.freeze("head.weight"));
  TrainOptions options;
  options.entry_point = "encode";
  Floats x = {1, -2};
  const Tensor batch[] = {tensor("x", {1, 2}, x)};
  const std::string path = testing::TempDir() + test_name("places train " + GetParam());
  {
    Trainer t = must(Trainer::create(model_, device_, options));
    ASSERT_TRUE(must(t.micro_step(batch)).has_value());
    ASSERT_OK(t.snapshot());
    ASSERT_OK(t.save(path, {}));
    ASSERT_TRUE(must(t.micro_step(batch)).has_value());
    const Floats then = values(model_, "embed.weight");
    ASSERT_OK(t.rollback());
    ASSERT_TRUE(must(t.micro_step(batch)).has_value());
    EXPECT_EQ(values(model_, "embed.weight"), then);
    ASSERT_TRUE(t.resume(path).ok());
    ASSERT_TRUE(must(t.micro_step(batch)).has_value());
    EXPECT_EQ(values(model_, "embed.weight"), then);
    for (size_t row = 2; row < 5; ++row) {
      EXPECT_EQ(place(model_, row), device_.info().name);
    }
  }
  options.entry_point = "both";
  options.loss = "y";
  const Status refused = Trainer::create(model_, device_, options).status();
  EXPECT_NE(refused.message().find("(\"head.weight\") on home"), std::string::npos)
      << refused.message();
}
BOWLINE_ON_ALL_DEVICES(TwoDevices);

}  // namespace
}  // namespace bowline::test
