// Checkpoints that can be resumed, and the messages for checkpoints that cannot.
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "graph/load.h"
#include "graph/save.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

class Resume : public testing::Test {
 protected:
  Resume() {
    EXPECT_OK(lm_.model.to(cpu_));
    options_ = adamw(lm_);
    options_.accumulation = 2;
    options_.schedule.kind = Schedule::Kind::linear;
    options_.schedule.total_steps = 10;
    Trainer t = must(Trainer::create(lm_.model, cpu_, options_));
    must(train_step(t, lm_, 0, 2));
    must(t.micro_step(lm_.data(2)));
    EXPECT_OK(t.save(path_, {}));
  }
  ~Resume() override { std::filesystem::remove(path_); }

  // Returns "resumed", or the message after the name of the file.
  std::string resume(const TrainOptions& o, TinyLm& lm, const ResumeOptions& how = {}) {
    Trainer t = must(Trainer::create(lm.model, cpu_, o));
    const auto before = all_bytes(lm.model);
    const std::string listing = lm.model.storages();
    const auto r = t.resume(path_, how);
    if (r.ok()) {
      notes_ = r.value().notes;
      return "resumed";
    }
    EXPECT_EQ(r.status().code(), Code::bad_file);
    EXPECT_EQ(all_bytes(lm.model), before);
    EXPECT_EQ(lm.model.storages(), listing);
    const std::string head = format("\"{}\" cannot be resumed: ", path_);
    EXPECT_EQ(r.status().message().substr(0, head.size()), head);
    return r.status().message().substr(head.size());
  }
  std::string resume(const TrainOptions& o) { return resume(o, lm_); }

  // Writes the file again with another training state or other rows.
  void rewrite(const std::function<void(model::TrainingState&, params::Table&)>& edit) {
    const auto saved = must(graph::load_model(path_));
    model::TrainingState t(*saved->extras.training);
    edit(t, saved->table);
    EXPECT_OK(graph::save_model(*saved, path_, &t));
  }
  std::string after(const std::function<void(model::TrainingState&)>& edit) {
    std::filesystem::copy_file(path_, path_ + ".kept");
    rewrite([&](model::TrainingState& t, params::Table&) { edit(t); });
    const std::string said = resume(options_);
    std::filesystem::rename(path_ + ".kept", path_);
    return said;
  }

  const std::string path_ = testing::TempDir() + "bowline_resume_" + std::to_string(getpid());
  const Device cpu_ = open_test_device("cpu");
  TinyLm lm_ = tiny_lm(2);
  TrainOptions options_;
  std::vector<std::string> notes_;
};

TEST_F(Resume, AnotherRunIsRefusedByWhatDiffers) {
  EXPECT_EQ(resume(options_), "resumed");
  const auto with = [&](const auto& change) {
    TrainOptions o = options_;
    change(o);
    return resume(o);
  };
  EXPECT_EQ(with([](TrainOptions& o) { o.optimizer.settings["beta2"] = 0.99f; }),
            "it belongs to a run with another beta2: 0.999, now 0.99.");
  EXPECT_EQ(with([](TrainOptions& o) { o.optimizer.settings["eps"] = 1e-6f; }),
            "it belongs to a run with another eps: 1e-08, now 1e-06.");
  EXPECT_EQ(with([](TrainOptions& o) { o.schedule.learning_rate = 1; }),
            "it belongs to a run with another learning_rate: 0.003, now 1.");
  EXPECT_EQ(with([](TrainOptions& o) { o.schedule.kind = Schedule::Kind::cosine; }),
            "it belongs to a run with another schedule: linear, now cosine.");
  EXPECT_EQ(with([](TrainOptions& o) { o.clip_norm = 2; }),
            "it belongs to a run with another clip_norm: 1, now 2.");
  EXPECT_EQ(with([](TrainOptions& o) { o.dims[0].value = 3; }),
            "it belongs to a run with another dims: batch=2 seq=12, now batch=3 seq=12.");
  EXPECT_EQ(with([](TrainOptions& o) {
              o.groups.resize(1);
              o.groups[0].pattern = "embed*";
            }),
            "it belongs to a run with another groups: , now embed* rate 1.");
  EXPECT_EQ(with([](TrainOptions& o) { o.schedule.total_steps = 20; }),
            "it belongs to a run with another total_steps: 10, now 20.");
  TrainOptions longer = options_;
  longer.schedule.total_steps = 20;
  EXPECT_EQ(resume(longer, lm_, {.extend = true}), "resumed");
  longer.seed = 6;
  EXPECT_EQ(resume(longer, lm_, {.extend = true}),
            "it belongs to a run with another seed: 5, now 6.");
}

TEST_F(Resume, AnotherGraphOrPartitionIsRefused) {
  TinyLm other = tiny_lm(2, 0.2f);  // another dropout, the same table
  ASSERT_OK(other.model.to(cpu_));
  EXPECT_EQ(resume(options_, other),
            "its graph differs from that of \"loss\": another operator, attribute (heads, "
            "dropout, ...), shape or order.");
  TinyLm untied = tiny_lm(2);
  must(untied.model.untie("head.weight"));
  ASSERT_OK(untied.model.to(cpu_));
  EXPECT_EQ(
      resume(options_, untied).substr(0, 84),
      "its ties differ: parameter \"head.weight\" has storage 0 in the checkpoint and 18 here");
}

TEST_F(Resume, ATrainingStateThatCannotBeIsRefused) {
  using State = model::TrainingState;
  EXPECT_EQ(after([](State&) {}), "resumed");
  EXPECT_EQ(after([](State& t) {
              t.micro_step = 2;
              t.loss_log = {1, 1};
              t.loss_weights = {1, 1};
            }),
            "its unfinished step already has 2 of 2 micro-batches.");
  EXPECT_EQ(after([](State& t) { t.loss_weights.push_back(1); }),
            "it has 2 loss weights for 1 micro-batches of the unfinished step.");
  EXPECT_EQ(after([](State& t) { t.micro_step = uint64_t{1} << 32; }),
            "it has 1 losses for 4294967296 micro-batches of the unfinished step.");
  EXPECT_EQ(after([](State& t) { t.loss_log.clear(); }),
            "it has 0 losses for 1 micro-batches of the unfinished step.");
  EXPECT_EQ(after([](State& t) { t.applied_steps = 2; }),
            "it counts 2 applied steps, but only 1 steps in all.");
  EXPECT_EQ(after([](State& t) { t.rng_counter = 0; }),
            "it counts 1 micro-batches of the unfinished step, but only 0 in all.");
  EXPECT_EQ(after([](State& t) { t.learning_rate = -1.0f; }), "its learning rate is -1.");
  EXPECT_EQ(after([](State& t) { t.run.clear(); }),
            "it belongs to a run with another optimizer: none, now adamw.");
}

TEST_F(Resume, MomentsThatNoOptimizerMakesAreRefused) {
  const auto with = [&](uint32_t slot, float value) {
    std::filesystem::copy_file(path_, path_ + ".kept");
    rewrite([&](model::TrainingState&, params::Table& table) {
      const uint32_t row = *table.owned(0, params::Role::moment, slot);
      auto bytes = must(params::read_bytes(table.storages[row]));
      std::memcpy(bytes.data() + 4, &value, 4);
      params::Home home;
      home.host = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
      table.set_home(row, std::move(home));
    });
    const std::string said = resume(options_);
    std::filesystem::rename(path_ + ".kept", path_);
    return said;
  };
  EXPECT_EQ(with(0, -1), "resumed");
  EXPECT_EQ(with(0, NAN), "moment 0 of storage 0 holds the invalid value nan.");
  EXPECT_EQ(with(1, -1), "moment 1 of storage 0 holds the invalid value -1.");
}

TEST_F(Resume, SkippedStepsAreNotCountedAsApplied) {
  TinyLm lm = tiny_lm(2);
  ASSERT_OK(lm.model.to(cpu_));
  Trainer t = must(Trainer::create(lm.model, cpu_, options_));
  must(train_step(t, lm, 0, 2));
  const Floats norm = values(lm.model, "norm");
  Floats broken = norm;
  broken[0] = NAN;
  ASSERT_OK(set(lm.model, "norm", {16}, broken));
  EXPECT_TRUE(must(train_step(t, lm, 2, 2)).skipped);
  ASSERT_OK(set(lm.model, "norm", {16}, norm));
  ASSERT_OK(t.save(path_, {}));
  Trainer again = must(Trainer::create(lm_.model, cpu_, options_));
  EXPECT_EQ(must(again.resume(path_)).step, 2u);
  must(train_step(t, lm, 4, 2));
  must(train_step(again, lm_, 4, 2));
  EXPECT_EQ(all_bytes(lm_.model), all_bytes(lm.model));
}

TEST_F(Resume, AnotherDeviceIsReported) {
  EXPECT_EQ(resume(options_), "resumed");
  EXPECT_TRUE(notes_.empty());
  const Device other = open_test_device("opaque");
  ASSERT_OK(lm_.model.to(other));
  Trainer t = must(Trainer::create(lm_.model, other, options_));
  const Progress p = must(t.resume(path_));
  ASSERT_EQ(p.notes.size(), 1u);
  EXPECT_EQ(p.notes[0].substr(0, 35), "The checkpoint was written on cpu: ");
}

// Storages that the file or the run has thawed or frozen since the last step.
TEST(ResumeRows, ThawedAndFrozenStorages) {
  const std::string path = testing::TempDir() + "bowline_thawed_" + std::to_string(getpid());
  const Device cpu = open_test_device("cpu");
  const auto make = [&] {
    TinyLm lm = tiny_lm(1);
    EXPECT_OK(lm.model.to(cpu));
    return lm;
  };
  TinyLm a = make();
  ASSERT_OK(a.model.freeze("norm"));
  Trainer t = must(Trainer::create(a.model, cpu, adamw(a)));
  must(train_step(t, a, 0));
  ASSERT_OK(a.model.freeze("norm", false));
  ASSERT_OK(a.model.freeze("layers.0.q"));
  ASSERT_OK(t.save(path, {}));
  TinyLm b = make();
  b.model = must(Model::open(path));
  ASSERT_OK(b.model.to(cpu));
  Trainer u = must(Trainer::create(b.model, cpu, adamw(b)));
  ASSERT_OK(u.resume(path).status());
  for (TinyLm* lm : {&a, &b}) {
    must(train_step(lm == &a ? t : u, *lm, 1));
    ASSERT_OK(lm->model.freeze("layers.0.q", false));
    must(train_step(lm == &a ? t : u, *lm, 2));
  }
  for (const char* name : {"norm", "layers.0.q", "embed.weight"}) {
    EXPECT_EQ(values(a.model, name), values(b.model, name)) << name;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bowline::test
