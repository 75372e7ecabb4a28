// Dropout of adapters: on what the change is applied to, while training alone.
#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

using AdapterDropout = OnDevice;
BOWLINE_ON_ALL_DEVICES(AdapterDropout);

constexpr float kRate = 0.4f;

AdapterOptions options(float dropout) {
  AdapterOptions o;
  o.rank = 2;
  o.alpha = 6;
  o.target = "*.q";
  o.seed = 3;
  o.dropout = dropout;
  return o;
}

// y = x w^T, whose sum is the loss.
Model one_linear() {
  Model m;
  const Parameter w = must(m.parameter("w.q", {3, 4}, Init::normal(1)));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {"rows", 4});
  const Value y = g.op("Linear", {x, g.parameter(w)});
  g.output("loss", g.op("ReduceSum", {y}, {{"axes", {0, 1}}}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

// The gradient of B is scale times the sum over rows of dropped(x) A^T, where element i of x is kept as the head of the operator says.
TEST_P(AdapterDropout, IsThatOfTheOperatorOnTheInputOfTheChangeAlone) {
  Model m = one_linear();
  must(m.add_adapter("ad", options(kRate)));
  ASSERT_OK(m.to(device_));
  TrainOptions o;
  o.dims = {{"rows", 5}};
  o.seed = 11;
  Trainer t = must(Trainer::create(m, device_, o));
  Floats x(20), a(8), b(6);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i) - 7.5f;
  }
  ASSERT_OK(m.get_value("w.q.ad.lora_a", tensor("", {2, 4}, a)));
  const Tensor batch[] = {tensor("x", {5, 4}, x)};
  const float before = must(t.evaluate(batch));
  const StepReport step = *must(t.micro_step(batch));
  EXPECT_FLOAT_EQ(step.loss, before) << "B is zero, and what is beside the change has no dropout";
  ASSERT_OK(t.gradient("w.q.ad.lora_b", tensor("", {3, 2}, b)));
  for (size_t r = 0; r < 2; ++r) {
    double sum = 0;
    for (uint32_t i = 0; i < x.size(); ++i) {
      const RandomBlock words = philox({i / 4, uint32_t{1} << 31, 0, 0}, {11, 0});
      const bool kept = words[i % 4] >= kRate * 4294967296.0;
      sum += kept ? x[i] / (1 - kRate) * a[r * 4 + i % 4] : 0;
    }
    for (size_t out = 0; out < 3; ++out) {
      EXPECT_NEAR(b[out * 2 + r], 3 * sum, 1e-4 * std::abs(3 * sum) + 1e-4);
    }
  }
}

// The losses of so many steps, from a model as `begin` leaves it.
std::vector<float> losses(const Device& device, float dropout, uint64_t seed, uint32_t steps = 4) {
  TinyLm lm = tiny_lm(3, 0);
  must(lm.model.add_adapter("ad", options(dropout)));
  EXPECT_OK(lm.model.to(device));
  TrainOptions o = adamw(lm);
  o.seed = seed;
  Trainer t = must(Trainer::create(lm.model, device, o));
  std::vector<float> out;
  for (uint32_t i = 0; i < steps; ++i) {
    out.push_back(must(train_step(t, lm, i)).loss);
  }
  return out;
}

TEST_P(AdapterDropout, DrawsWhatTheSeedSays) {
  EXPECT_EQ(losses(device_, kRate, 5), losses(device_, kRate, 5));
  EXPECT_NE(losses(device_, kRate, 5), losses(device_, kRate, 6));
  EXPECT_NE(losses(device_, kRate, 5), losses(device_, 0, 5));
}

TEST_P(AdapterDropout, IsOffOutsideOfTraining) {
  TinyLm lm = tiny_lm(3, 0);
  must(lm.model.add_adapter("ad", options(kRate)));
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  for (uint32_t i = 0; i < 3; ++i) {
    must(train_step(t, lm, i));
  }
  Model merged = must(lm.model.clone());
  ASSERT_OK(merged.merge_adapter("ad"));
  Session session = must(Session::create(merged, device_, "loss", lm.dims()));
  Floats loss(1), logits(2 * 12 * 29);
  const Tensor outputs[] = {tensor("loss", {}, loss), tensor("logits", {2, 12, 29}, logits)};
  ASSERT_OK(session.run(lm.data(7), outputs));
  EXPECT_NEAR(must(t.evaluate(lm.data(7))), loss[0], 1e-5);
}

TEST(AdapterDropoutFiles, AFileKeepsIt) {
  const std::string path = format("{}/dropout_adapter.bowline", testing::TempDir());
  TinyLm lm = tiny_lm(3, 0), other = tiny_lm(3, 0);
  must(lm.model.add_adapter("ad", options(kRate)));
  ASSERT_OK(lm.model.save_adapter("ad", path));
  must(other.model.load_adapter(path));
  std::filesystem::remove(path);
  Floats rate(1);
  ASSERT_OK(other.model.get_value("ad.lora_dropout", tensor("", {1}, rate)));
  EXPECT_EQ(rate[0], kRate);
  ASSERT_OK(other.model.remove_adapter("ad"));
  EXPECT_FALSE(other.model.find("ad.lora_dropout").ok());
  must(other.model.add_adapter("ad", options(0)));
  EXPECT_FALSE(other.model.find("ad.lora_dropout").ok()) << "none has no row";
}

TEST_P(AdapterDropout, AResumedRunDrawsOn) {
  const std::string path = format("{}/dropout_{}.bowline", testing::TempDir(), GetParam());
  const auto begin = [&] {
    TinyLm lm = tiny_lm(3, 0);
    must(lm.model.add_adapter("ad", options(kRate)));
    EXPECT_OK(lm.model.to(device_));
    return lm;
  };
  TinyLm lm = begin(), again = begin();
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  must(train_step(t, lm, 0));
  ASSERT_OK(t.save(path, {}));
  must(train_step(t, lm, 1));
  Trainer resumed = must(Trainer::create(again.model, device_, adamw(again)));
  must(resumed.resume(path));
  must(train_step(resumed, again, 1));
  std::filesystem::remove(path);
  EXPECT_EQ(all_bytes(again.model), all_bytes(lm.model));
}

TEST(AdapterDropoutFiles, ARateThatIsNoneIsRefused) {
  for (const float rate : {1.0f, -0.1f, std::nanf("")}) {
    TinyLm lm = tiny_lm(1, 0);
    const auto added = lm.model.add_adapter("ad", options(rate));
    ASSERT_FALSE(added.ok()) << rate;
    EXPECT_NE(added.status().message().find("has a dropout of"), std::string::npos);
    EXPECT_TRUE(lm.model.adapters().empty());
  }
}

}  // namespace
}  // namespace bowline::test
