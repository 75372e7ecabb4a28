// Properties of every optimizer: it reduces the loss, and a checkpoint contains all state to
// continue bit for bit.
#include "core/optimizers.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

bool is_flag(const OptimizerInfo& info, std::string_view setting) {
  return std::ranges::find(info.settings, setting, &OptimizerSetting::name)->is_flag;
}

// Each with its defaults, and with all its states.
std::vector<Optimizer> all_optimizers() {
  std::vector<Optimizer> out;
  for (const OptimizerDef& def : optimizer_defs()) {
    Optimizer o = {std::string(def.info.name), {{"weight_decay", 0.01f}}};
    out.push_back(o);
    bool has_more = false;
    for (const OptimizerState& state : def.states) {
      has_more = has_more || !state.needs.empty();
      if (!state.needs.empty()) {
        o.settings[std::string(state.needs)] = is_flag(def.info, state.needs) ? 1.0f : 0.5f;
      }
    }
    if (has_more) {
      if (o.name == "rmsprop") {
        o.settings["eps"] = 1e-2f;  // the variance begins with rounding errors
      }
      out.push_back(o);
    }
  }
  return out;
}

TrainOptions options_of(const TinyLm& lm, const Optimizer& optimizer) {
  TrainOptions o = adamw(lm);
  o.optimizer = optimizer;
  o.schedule.learning_rate = optimizer.name == "sgd" ? 0.3f : 3e-3f;
  return o;
}

class Optimizers : public OnDevice {};

TEST_P(Optimizers, LearnAndGoOnFromACheckpoint) {
  constexpr uint32_t kSteps = 6, kSaved = 3;
  const std::string path = testing::TempDir() + "bowline_optimizers_" + test_name(GetParam()) +
                           "_" + std::to_string(getpid());
  for (const Optimizer& optimizer : all_optimizers()) {
    SCOPED_TRACE(optimizer.name);
    TinyLm whole = tiny_lm(1, 0);
    ASSERT_OK(whole.model.to(device_));
    Trainer t = must(Trainer::create(whole.model, device_, options_of(whole, optimizer)));
    const float before = must(t.evaluate(whole.data(0)));
    for (uint32_t s = 0; s < kSteps; ++s) {
      if (s == kSaved) {
        ASSERT_OK(t.save(path, {}));
      }
      must(train_step(t, whole, 0));
    }
    EXPECT_LT(must(t.evaluate(whole.data(0))), before);

    TinyLm half = tiny_lm(1, 0, 2);  // other weights
    ASSERT_OK(half.model.to(device_));
    Trainer u = must(Trainer::create(half.model, device_, options_of(half, optimizer)));
    const Progress progress = must(u.resume(path));
    EXPECT_EQ(progress.step, kSaved);
    for (uint32_t s = kSaved; s < kSteps; ++s) {
      must(train_step(u, half, 0));
    }
    EXPECT_EQ(all_bytes(half.model), all_bytes(whole.model));

    TinyLm other = tiny_lm(1, 0);
    ASSERT_OK(other.model.to(device_));
    const Optimizer another = {optimizer.name == "adagrad" ? "adamw" : "adagrad",
                               {{"weight_decay", 0.01f}}};
    Trainer v = must(Trainer::create(other.model, device_, options_of(other, another)));
    EXPECT_EQ(v.resume(path).status().code(), Code::bad_file);
    std::filesystem::remove(path);
  }
}

BOWLINE_ON_ALL_DEVICES(Optimizers);

class OptimizerSettings : public testing::Test {
 protected:
  std::string refusal(const Optimizer& optimizer) {
    TinyLm lm = tiny_lm(1);
    EXPECT_OK(lm.model.to(cpu_));
    TrainOptions o = adamw(lm);
    o.optimizer = optimizer;
    const Status status = Trainer::create(lm.model, cpu_, o).status();
    return status.ok() ? "" : std::string(status.message());
  }

  const Device cpu_ = open_test_device("cpu");
};

// Every setting outside of its range, and at what the range includes of its ends.
TEST_F(OptimizerSettings, AreInsideTheirRanges) {
  for (const OptimizerInfo& info : optimizers()) {
    const auto at = [&](const OptimizerSetting& s, float value) {
      return refusal({std::string(info.name), {{std::string(s.name), value}}});
    };
    for (const OptimizerSetting& s : info.settings) {
      SCOPED_TRACE(std::string(info.name) + " " + std::string(s.name));
      EXPECT_EQ(at(s, s.default_value), "");
      if (std::isfinite(s.min)) {
        EXPECT_EQ(at(s, s.min).empty(), s.min_inclusive);
        EXPECT_NE(at(s, s.min - 1), "");
      }
      if (std::isfinite(s.max)) {
        EXPECT_EQ(at(s, s.max).empty(), s.max_inclusive);
        EXPECT_NE(at(s, s.max + 1), "");
      }
      EXPECT_NE(at(s, std::numeric_limits<float>::quiet_NaN()), "");
      EXPECT_EQ(at(s, 0.5f).empty(), !s.is_flag && s.min <= 0.5f && s.max > 0.5f);
    }
  }
}

TEST_F(OptimizerSettings, ThatAnOptimizerDoesNotHaveAreRefused) {
  EXPECT_EQ(refusal({"sgd", {{"beta2", 0.5f}}}),
            "The optimizer sgd has no setting \"beta2\". There are \"weight_decay\", "
            "\"decay_all\", \"momentum\" and \"nesterov\".");
  EXPECT_EQ(refusal({"adam"}), "There is no optimizer \"adam\". Did you mean \"adamw\"?");
  EXPECT_EQ(refusal({"rmsprop", {{"alpha", -1}}}), "alpha is -1, outside [0, 1).");
  EXPECT_EQ(refusal({"adagrad", {{"eps", 0}}}), "eps is 0, outside (0, inf).");
  EXPECT_EQ(refusal({"adafactor", {{"beta2_decay", 0.5f}}}),
            "beta2_decay is 0.5, outside (-inf, 0].");
  EXPECT_EQ(refusal({"sgd", {{"nesterov", 0.5f}}}), "nesterov is 0.5; it must be 0 or 1.");
}

}  // namespace
}  // namespace bowline::test
