// A memory budget that is too small for all activations. The backward part recomputes some of them,
// with the same bits.
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

class Recompute : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { BOWLINE_NEED(why_test_device_missing(GetParam())); }
  static Device open(uint64_t budget = 0) { return open_test_device(GetParam(), 1, budget); }
};
BOWLINE_ON_ALL_DEVICES(Recompute);

struct Recomputed {
  Floats losses;
  Floats weights;
  uint64_t again = 0;
  uint64_t predicted = 0;
  uint64_t peak = 0;
};

Result<Recomputed> train(const Device& device, int layers, int steps = 3) {
  TinyLm lm = tiny_lm(layers);
  BOWLINE_TRY(lm.model.to(device));
  BOWLINE_TRY_ASSIGN(Trainer t, Trainer::create(lm.model, device, adamw(lm)));
  Recomputed run;
  for (int i = 0; i < steps; ++i) {
    const std::vector<Tensor> batch = lm.data(static_cast<uint32_t>(i));
    const std::span<const Tensor> batches[] = {batch};
    BOWLINE_TRY_ASSIGN(const StepReport report, t.step(batches));
    run.losses.push_back(report.loss);
    run.losses.push_back(report.grad_norm);
  }
  run.weights = values(lm.model, "embed.weight");
  run.again = must(t.describe()).recomputed_nodes;
  run.predicted = t.memory().predicted_bytes;
  run.peak = device.counters().peak_bytes;
  return run;
}

TEST_P(Recompute, GivesTheSameBitsInLessMemory) {
  const Recomputed all = must(train(open(), 4));
  EXPECT_EQ(all.again, 0u) << "nothing is computed again where there is room";
  uint64_t fewest = all.predicted;
  uint64_t most_again = 0;
  uint64_t first_again = UINT64_MAX;
  bool refused = false;
  for (uint64_t budget = all.predicted - 1; !refused && budget > all.predicted / 4;
       budget -= all.predicted / 16) {
    SCOPED_TRACE(budget);
    const Result<Recomputed> less = train(open(budget), 4);
    if (!less.ok()) {
      // The planner tries all choices and reports the size of the best.
      EXPECT_EQ(less.status().code(), Code::over_budget) << less.status().message();
      EXPECT_NE(less.status().message().find(format("its memory budget is {}.", budget)),
                std::string::npos);
      EXPECT_NE(less.status().message().find("recompute"), std::string::npos)
          << less.status().message();
      refused = true;
      continue;
    }
    EXPECT_EQ(less.value().losses, all.losses);
    EXPECT_EQ(less.value().weights, all.weights);
    EXPECT_GT(less.value().again, 0u);
    EXPECT_LE(less.value().peak, budget);
    EXPECT_GE(less.value().again, most_again) << "less room, fewer nodes again";
    most_again = less.value().again;
    first_again = std::min(first_again, most_again);
    fewest = std::min(fewest, less.value().predicted);
  }
  EXPECT_LT(first_again, most_again) << "a byte less costs as much as a quarter";
  EXPECT_TRUE(refused) << "no budget was too small";
  EXPECT_LT(fewest, all.predicted * 9 / 10) << "hardly anything is saved";
}

// Layers without a Repeat. The budget has room for some of the activations of 12 layers.
struct Unrolled {
  Model model;
  Floats x = Floats(1024 * 64);
  Dims shape = {1024, 64};
};

Unrolled unrolled() {
  Unrolled u;
  for (size_t i = 0; i < u.x.size(); ++i) {
    u.x[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  }
  std::vector<Parameter> weights;
  for (int i = 0; i < 12; ++i) {
    weights.push_back(must(u.model.parameter(format("w{}", i), Dims{64, 64}, Init::normal(0.2f))));
  }
  GraphBuilder g(u.model, "loss");
  Value y = g.input("x", DType::f32, {1024, 64});
  for (const Parameter& p : weights) {
    y = g.op("Gelu", {g.op("Linear", {y, g.parameter(p)})});
  }
  g.output("loss", g.op("ReduceMean", {g.op("Mul", {y, y})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(u.model.materialize(3));
  return u;
}

Result<Recomputed> train_unrolled(const Device& device) {
  Unrolled u = unrolled();
  BOWLINE_TRY(u.model.to(device));
  BOWLINE_TRY_ASSIGN(Trainer t, Trainer::create(u.model, device, TrainOptions{}));
  Recomputed run;
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> batch = {tensor("x", u.shape, u.x)};
    const std::span<const Tensor> batches[] = {batch};
    BOWLINE_TRY_ASSIGN(const StepReport report, t.step(batches));
    run.losses.push_back(report.loss);
  }
  run.weights = values(u.model, "w0");
  run.again = must(t.describe()).recomputed_nodes;
  run.predicted = t.memory().predicted_bytes;
  run.peak = device.counters().peak_bytes;
  return run;
}

TEST_P(Recompute, ALongChainOfLayersFitsInThreeFifths) {
  const Recomputed all = must(train_unrolled(open()));
  EXPECT_EQ(all.again, 0u);
  for (const uint64_t percent : {95, 80, 60}) {
    SCOPED_TRACE(percent);
    const uint64_t budget = all.predicted * percent / 100;
    const Recomputed less = must(train_unrolled(open(budget)));
    EXPECT_EQ(less.losses, all.losses);
    EXPECT_EQ(less.weights, all.weights);
    EXPECT_GT(less.again, 0u);
    EXPECT_LE(less.peak, budget);
  }
}

// The body of a Repeat reads quantized weights directly, with 16 bits, too. No iteration keeps a
// dequantized copy.
TEST_P(Recompute, QuantizedWeightsOfARepeatAreNotKept) {
  const Device device = open();
  for (const char* encoding : {"int8", "int8 block row", "int8 block row with zero points",
                               "int4 block 16", "int4 block 16 with zero points", "q8_0", "q4_0"}) {
    std::vector<float> losses;
    for (const std::optional<DType> compute :
         {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
      SCOPED_TRACE(encoding);
      TinyLm lm = tiny_lm(4, 0, 1, 32);  // blocks of GGUF have 32 elements
      ASSERT_GT(must(quantize(lm.model, encoding, "layers.*")).storages, 0u);
      must(add_adapter(lm.model, "lora", {.rank = 2, .target = "layers.*"}));
      ASSERT_OK(lm.model.to(device));
      TrainOptions options = adamw(lm);
      options.precision.compute_dtype = compute;
      Trainer t = must(Trainer::create(lm.model, device, options));
      losses.push_back(must(train_step(t, lm, 0)).loss);
    }
    EXPECT_NEAR(losses[1], losses[0], 0.02f * losses[0]);
    EXPECT_NEAR(losses[2], losses[0], 0.02f * losses[0]);
  }
}

}  // namespace
}  // namespace bowline::test
