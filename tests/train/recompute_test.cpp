// A memory budget that is too short for all activations: some are computed again in the backward part, with the same bits.
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
  BOWLINE_ASSIGN(Trainer t, Trainer::create(lm.model, device, adamw(lm)));
  Recomputed run;
  for (int i = 0; i < steps; ++i) {
    const std::vector<Tensor> batch = lm.data(static_cast<uint32_t>(i));
    const std::span<const Tensor> batches[] = {batch};
    BOWLINE_ASSIGN(const StepReport report, t.step(batches));
    run.losses.push_back(report.loss);
    run.losses.push_back(report.grad_norm);
  }
  run.weights = values(lm.model, "embed.weight");
  run.again = must(t.describe()).computed_again;
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
      // Everything is tried first, and the bytes of that are said.
      EXPECT_EQ(less.status().code(), Code::over_budget) << less.status().message();
      EXPECT_NE(less.status().message().find(format("its memory budget is {}.", budget)),
                std::string::npos);
      EXPECT_NE(less.status().message().find("compute again"), std::string::npos)
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

}  // namespace
}  // namespace bowline::test
