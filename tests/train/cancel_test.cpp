// Trainer::cancel() at each record of a step: the weights stay, and the repeated step has the same
// bits.
#include "faults/acting_device.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

struct Way {
  const char* name;
  uint32_t accumulation = 1;
  GradientSum sum = GradientSum::in_place;
  bool has_hook = false;
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

class CancelTraining : public testing::TestWithParam<Way> {
 protected:
  // A trainer that has done one step.
  struct World {
    explicit World(const Way& way) {
      EXPECT_OK(lm.model.to(device));
      TrainOptions o = adamw(lm);
      o.accumulation = way.accumulation;
      o.gradient_sum = way.sum;
      trainer.emplace(must(Trainer::create(lm.model, device, o)));
      if (way.has_hook) {
        trainer->set_gradient_hook([](const GradientInfo&, std::span<float>) { return Status(); });
      }
      at.act = [this] { trainer->cancel(); };
      must(train_step(*trainer, lm, 0, way.accumulation));
    }
    // The micro-batches of the second step from the first that is not finished.
    Result<std::optional<StepReport>> second_step() {
      Result<std::optional<StepReport>> report = std::optional<StepReport>();
      while (report.ok() && !report.value()) {
        report = trainer->micro_step(lm.data(100 + trainer->accumulated()));
      }
      return report;
    }

    AtRecord at;
    Device device = wrap("acting", std::make_unique<ActingDevice>(at));
    TinyLm lm = tiny_lm(1);
    std::optional<Trainer> trainer;
  };
};

// Weights and moments. Gradients have no meaning between steps.
std::vector<std::byte> weights(const Model& model) {
  std::vector<std::byte> out;
  for (const StorageInfo& s : must(model.describe()).storages) {
    if (!s.empty && s.role != StorageRole::gradient) {
      const auto bytes = must(model.storage_bytes(s.tie));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

TEST_P(CancelTraining, TheStepCanBeRepeated) {
  World undisturbed(GetParam());
  undisturbed.at.records = 0;
  must(undisturbed.second_step());
  const int all = undisturbed.at.records;
  const auto right = weights(undisturbed.lm.model);
  int cancelled = 0;
  int finished = 0;
  for (int n = 1; n <= all; n += 3) {
    SCOPED_TRACE(n);
    World w(GetParam());
    const auto before = weights(w.lm.model);
    w.at.left = n;
    const auto report = w.second_step();
    EXPECT_EQ(w.trainer->state(), TrainState::ready);
    if (report.ok()) {  // the request came during the update
      ++finished;
      EXPECT_EQ(weights(w.lm.model), right);
      EXPECT_EQ(w.trainer->micro_step(w.lm.data(200)).status().code(), Code::cancelled);
      continue;
    }
    ++cancelled;
    EXPECT_EQ(report.status().code(), Code::cancelled);
    EXPECT_EQ(report.status().message(), "The step was cancelled.");
    EXPECT_EQ(weights(w.lm.model), before);
    must(w.second_step());
    EXPECT_EQ(weights(w.lm.model), right);
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(finished, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, CancelTraining,
                         testing::Values(Way{"plain"}, Way{"accumulating", 2},
                                         Way{"by_micro_batch", 2, GradientSum::by_micro_batch},
                                         Way{"hook", 1, GradientSum::in_place, true}),
                         [](const auto& p) { return std::string(p.param.name); });

// Micro-batches that were finished before the request are kept where the header says so.
TEST(CancelTrainingState, TellsWhichMicroBatchesAreLost) {
  for (const bool by_micro_batch : {false, true}) {
    AtRecord at;
    const Device device = wrap("acting", std::make_unique<ActingDevice>(at));
    TinyLm lm = tiny_lm(1);
    ASSERT_OK(lm.model.to(device));
    TrainOptions o = adamw(lm);
    o.accumulation = 3;
    o.gradient_sum = by_micro_batch ? GradientSum::by_micro_batch : GradientSum::in_place;
    Trainer t = must(Trainer::create(lm.model, device, o));
    at.act = [&] { t.cancel(); };
    must(t.micro_step(lm.data(0)));
    t.cancel();  // before the second micro-batch begins
    EXPECT_EQ(t.micro_step(lm.data(1)).status().code(), Code::cancelled);
    EXPECT_EQ(t.accumulated(), 1u);
    at.left = 5;  // while the second micro-batch runs
    EXPECT_EQ(t.micro_step(lm.data(1)).status().code(), Code::cancelled);
    EXPECT_EQ(t.accumulated(), by_micro_batch ? 1u : 0u);
    EXPECT_FALSE(must(t.micro_step(lm.data(t.accumulated()))).has_value());
  }
}

TEST(CancelTrainingState, AnEvaluationIsCancelledToo) {
  AtRecord at;
  const Device device = wrap("acting", std::make_unique<ActingDevice>(at));
  TinyLm lm = tiny_lm(1);
  ASSERT_OK(lm.model.to(device));
  Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
  at.act = [&] { t.cancel(); };
  const float right = must(t.evaluate(lm.data(1)));
  Floats logits(2 * 12 * 29);
  const Tensor outputs[] = {tensor("logits", {2, 12, 29}, logits)};
  EXPECT_EQ(must(t.evaluate(lm.data(1), outputs)), right);
  at.left = 2;
  EXPECT_EQ(t.evaluate(lm.data(1)).status().code(), Code::cancelled);
  at.left = 2;
  EXPECT_EQ(t.evaluate(lm.data(1), outputs).status().code(), Code::cancelled);
  EXPECT_EQ(must(t.evaluate(lm.data(1), outputs)), right);
}

}  // namespace
}  // namespace bowline::test
