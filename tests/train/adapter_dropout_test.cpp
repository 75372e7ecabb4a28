// Dropout of adapters. It applies to the input of the change, and only during training.
#include <filesystem>

#include "base/random.h"
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

// y = x w^T. The loss is the sum of y.
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

// The gradient of B is scale times the sum over the rows of dropped(x) A^T. The comment in the
// header of the operator defines which elements of x are kept.
TEST_P(AdapterDropout, IsThatOfTheOperatorOnTheInputOfTheChangeAlone) {
  Model m = one_linear();
  must(add_adapter(m, "ad", options(kRate)));
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

// Returns the losses of `steps` steps. `begin` prepares the model.
std::vector<float> losses(const Device& device, float dropout, uint64_t seed, uint32_t steps = 4) {
  TinyLm lm = tiny_lm(3, 0);
  must(add_adapter(lm.model, "ad", options(dropout)));
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
  must(add_adapter(lm.model, "ad", options(kRate)));
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
  for (uint32_t i = 0; i < 3; ++i) {
    must(train_step(t, lm, i));
  }
  Model merged = must(lm.model.clone());
  ASSERT_OK(merge_adapter(merged, "ad"));
  Session session = must(Session::create(merged, device_, "loss", lm.dims()));
  Floats loss(1), logits(2 * 12 * 29);
  const Tensor outputs[] = {tensor("loss", {}, loss), tensor("logits", {2, 12, 29}, logits)};
  ASSERT_OK(session.run(lm.data(7), outputs));
  EXPECT_NEAR(must(t.evaluate(lm.data(7))), loss[0], 1e-5);
}

std::vector<std::string> operators(const SegmentInfo& segment) {
  std::vector<std::string> out;
  for (const RecordInfo& r : segment.records) {
    out.push_back(r.op);
  }
  return out;
}

const SegmentInfo& segment_of(const PlanInfo& plan, std::string_view name) {
  return *std::ranges::find(plan.segments, name, &SegmentInfo::name);
}

// A plan for inference equals the plan of an adapter without dropout, until a run sets `training`.
TEST_P(AdapterDropout, CostsNothingInPlansThatOnlyRun) {
  std::vector<std::vector<std::string>> runs, evaluations;
  for (const float rate : {0.0f, kRate}) {
    TinyLm lm = tiny_lm(3, 0);
    must(add_adapter(lm.model, "ad", options(rate)));
    ASSERT_OK(lm.model.to(device_));
    Session session = must(Session::create(lm.model, device_, "loss", lm.dims()));
    runs.push_back(operators(must(session.describe()).segments[0]));
    Trainer t = must(Trainer::create(lm.model, device_, adamw(lm)));
    const PlanInfo plan = must(t.describe());
    evaluations.push_back(operators(segment_of(plan, "forward")));
    EXPECT_EQ(std::ranges::count(operators(segment_of(plan, "accumulate")), "Dropout"),
              rate == 0 ? 2 : 4)
        << "that of the model and that of the adapter, forward and backward";
  }
  EXPECT_EQ(std::ranges::count(runs[0], "Dropout"), 0);
  EXPECT_EQ(runs[1], runs[0]);
  EXPECT_EQ(evaluations[1], evaluations[0]);
}

TEST_P(AdapterDropout, IsThereInARunThatTrains) {
  Model m = one_linear();
  must(add_adapter(m, "ad", options(kRate)));
  Floats b(6, 1);
  ASSERT_OK(m.set_value("w.q.ad.lora_b", tensor("", {3, 2}, b)));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "loss", std::vector<BoundDim>{{"rows", 5}}));
  Floats x(20, 1), loss(1);
  const Tensor in = tensor("x", {5, 4}, x), out = tensor("loss", {}, loss);
  const auto run = [&](const std::vector<StepScalar>& steps) {
    EXPECT_OK(s.run({&in, 1}, {&out, 1}, steps));
    return loss[0];
  };
  const float plain = run({});
  EXPECT_EQ(s.counters().plan_builds, 1u);
  EXPECT_NE(run({{"training", 1}, {"seed", 4}}), plain);
  EXPECT_NE(run({{"training", 1}, {"seed", 5}}), plain);
  EXPECT_EQ(run({{"training", 0}}), plain);
  EXPECT_EQ(s.counters().plan_builds, 2u);
}

// A run accepts the per-step scalars of Dropout, whatever their values are.
TEST_P(AdapterDropout, ItsWordsAreKnownInARun) {
  Model m = one_linear();
  must(add_adapter(m, "ad", options(kRate)));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "loss", std::vector<BoundDim>{{"rows", 5}}));
  Floats x(20, 1), loss(1);
  const Tensor in = tensor("x", {5, 4}, x), out = tensor("loss", {}, loss);
  EXPECT_OK(s.run({&in, 1}, {&out, 1}, std::vector<StepScalar>{{"training", 0}, {"seed", 4}}));
  EXPECT_EQ(
      s.run({&in, 1}, {&out, 1}, std::vector<StepScalar>{{"sead", 4}}).message().substr(0, 37),
      "There is no per-step scalar \"sead\"; t");
}

TEST(AdapterDropoutFiles, AFileKeepsIt) {
  const std::string path = format("{}/dropout_adapter.bowline", testing::TempDir());
  TinyLm lm = tiny_lm(3, 0), other = tiny_lm(3, 0);
  must(add_adapter(lm.model, "ad", options(kRate)));
  ASSERT_OK(save_adapter(lm.model, "ad", path));
  must(load_adapter(other.model, path));
  std::filesystem::remove(path);
  Floats rate(1);
  ASSERT_OK(other.model.get_value("ad.lora_dropout", tensor("", {1}, rate)));
  EXPECT_EQ(rate[0], kRate);
  ASSERT_OK(remove_adapter(other.model, "ad"));
  EXPECT_FALSE(other.model.find("ad.lora_dropout").ok());
  must(add_adapter(other.model, "ad", options(0)));
  EXPECT_FALSE(other.model.find("ad.lora_dropout").ok()) << "none has no row";
}

TEST_P(AdapterDropout, AResumedRunDrawsOn) {
  const std::string path = format("{}/dropout_{}.bowline", testing::TempDir(), GetParam());
  const auto begin = [&] {
    TinyLm lm = tiny_lm(3, 0);
    must(add_adapter(lm.model, "ad", options(kRate)));
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
    const auto added = add_adapter(lm.model, "ad", options(rate));
    ASSERT_FALSE(added.ok()) << rate;
    EXPECT_NE(added.status().message().find("has a dropout of"), std::string::npos);
    EXPECT_TRUE(adapters(lm.model).empty());
  }
}

}  // namespace
}  // namespace bowline::test
