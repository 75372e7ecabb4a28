// Properties of every optimizer: it reduces the loss, and a checkpoint contains all state to
// continue bit for bit.
#include <unistd.h>

#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

std::vector<Optimizer> optimizers() {
  std::vector<Optimizer> out;
  for (size_t i = 0; i < optimizer_names().size(); ++i) {
    out.push_back(Optimizer::of(static_cast<Optimizer::Kind>(i)));
    out.back().weight_decay = 0.01f;
  }
  // RMSprop with all of its optional rows.
  Optimizer all = Optimizer::of(Optimizer::Kind::rmsprop);
  all.momentum = 0.5f;
  all.centered = true;
  all.eps = 1e-2f;
  out.push_back(all);
  Optimizer momentum = Optimizer::of(Optimizer::Kind::sgd);
  momentum.momentum = 0.9f;
  out.push_back(momentum);
  return out;
}

TrainOptions options_of(const TinyLm& lm, const Optimizer& optimizer) {
  TrainOptions o = adamw(lm);
  o.optimizer = optimizer;
  const bool sgd = optimizer.kind == Optimizer::Kind::sgd;
  o.schedule.learning_rate = sgd ? 0.3f : 3e-3f;
  return o;
}

class Optimizers : public OnDevice {};

TEST_P(Optimizers, LearnAndGoOnFromACheckpoint) {
  constexpr uint32_t kSteps = 6, kSaved = 3;
  const std::string path = testing::TempDir() + "bowline_optimizers_" + test_name(GetParam()) +
                           "_" + std::to_string(getpid());
  for (const Optimizer& optimizer : optimizers()) {
    SCOPED_TRACE(std::string(name_of(optimizer.kind)));
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
    Optimizer another = Optimizer::of(
        optimizer.kind == Optimizer::Kind::lion ? Optimizer::Kind::adagrad : Optimizer::Kind::lion);
    another.weight_decay = 0.01f;
    Trainer v = must(Trainer::create(other.model, device_, options_of(other, another)));
    EXPECT_EQ(v.resume(path).status().code(), Code::bad_file);
    std::filesystem::remove(path);
  }
}

BOWLINE_ON_ALL_DEVICES(Optimizers);

TEST(OptimizerOptions, AreLookedAtByThoseThatHaveThem) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm(1);
  ASSERT_OK(lm.model.to(cpu));
  const auto refused = [&](Optimizer::Kind kind, const auto& change) {
    TrainOptions o = adamw(lm);
    o.optimizer = Optimizer::of(kind);
    change(o.optimizer);
    const Status status = Trainer::create(lm.model, cpu, o).status();
    return status.ok() ? "" : status.message();
  };
  using K = Optimizer::Kind;
  EXPECT_EQ(refused(K::lion, [](Optimizer& o) { o.beta2 = 1; }), "beta2 is 1, outside [0, 1).");
  EXPECT_EQ(refused(K::rmsprop, [](Optimizer& o) { o.beta2 = 1; }), "");
  EXPECT_EQ(refused(K::rmsprop, [](Optimizer& o) { o.alpha = -1; }),
            "alpha is -1, outside [0, 1).");
  EXPECT_EQ(refused(K::adagrad, [](Optimizer& o) { o.eps = 0; }),
            "eps is 0; it is a number above 0.");
  EXPECT_EQ(refused(K::adafactor, [](Optimizer& o) { o.eps = 0; }), "");
  EXPECT_EQ(refused(K::adafactor, [](Optimizer& o) { o.beta2_decay = 0.5f; }),
            "beta2_decay is 0.5; it is a number up to 0.");
  EXPECT_EQ(refused(K::adagrad, [](Optimizer& o) { o.learning_rate_decay = -1; }),
            "learning_rate_decay is -1; it is a number from 0 on.");
  EXPECT_EQ(refused(static_cast<K>(9), [](Optimizer&) {}), "There is no optimizer 9.");
}

}  // namespace
}  // namespace bowline::test
