// Snapshot and rollback restore values, training state and ties after any changes, in place where
// possible.
#include <unistd.h>

#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

// LM32 with untied storages, so that every verb has an effect.
Seed untied() {
  Seed s = lm32();
  EXPECT_OK(s.model.untie("head").status());
  EXPECT_OK(set(s.model, "head", {3, 2}, {1, 2, 3, 4, 5, 6}));
  return s;
}

std::string wide_file() {
  const std::string path = testing::TempDir() + "bowline_wide_" + std::to_string(getpid());
  Model wide;
  const Dims shape = {1000, 2};
  must(wide.parameter("embed", shape, Init::ones()));
  must(wide.parameter("head", shape, Init::ones()));
  EXPECT_OK(wide.materialize(1));
  EXPECT_OK(wide.save(path));
  return path;
}

struct Verb {
  const char* name;
  Status (*act)(Seed&, Trainer&);
  friend void PrintTo(const Verb& v, std::ostream* out) { *out << v.name; }
};

const Verb kVerbs[] = {
    {"step", [](Seed& s, Trainer& t) { return t.micro_step(s.batch()).status(); }},
    {"tie", [](Seed& s, Trainer&) { return s.model.tie("embed", "head").status(); }},
    {"tie_untie",
     [](Seed& s, Trainer&) {
       BOWLINE_TRY(s.model.tie("embed", "head").status());
       return s.model.untie("head").status();
     }},
    {"freeze", [](Seed& s, Trainer&) { return s.model.freeze("head"); }},
    {"set_value",
     [](Seed& s, Trainer&) {
       return set(s.model, "head", {3, 2}, Floats(6, 9.0f));
     }},
    {"assign",
     [](Seed& s, Trainer&) {
       const std::string path = wide_file();
       const Status loaded = s.model.load(path, {.mode = LoadMode::assign}).status();
       std::filesystem::remove(path);
       return loaded;
     }},
    {"to", [](Seed& s, Trainer&) { return s.model.to(open_test_device("opaque")); }},
};

class Rollback : public testing::TestWithParam<Verb> {};
INSTANTIATE_TEST_SUITE_P(Verbs, Rollback, testing::ValuesIn(kVerbs),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_P(Rollback, UndoesTheVerb) {
  TrainOptions o;
  o.schedule.learning_rate = 0.1f;
  const auto run = [&](bool with_verb) {
    Seed s = untied();
    const Device cpu = open_test_device("cpu");
    EXPECT_OK(s.model.to(cpu));
    Trainer t = must(Trainer::create(s.model, cpu, o));
    step(t, s);
    const std::string before = s.model.parameters() + s.model.ties();
    EXPECT_OK(t.snapshot());
    if (with_verb) {
      EXPECT_OK(GetParam().act(s, t));
      EXPECT_OK(t.micro_step(s.batch()).status());
      EXPECT_OK(t.rollback());
      EXPECT_EQ(s.model.parameters() + s.model.ties(), before);
      EXPECT_EQ(t.steps(), 1u);
    }
    Floats out;
    for (int i = 0; i < 3; ++i) {
      const StepReport r = step(t, s);
      out.push_back(r.loss);
      out.push_back(r.grad_norm);
    }
    for (const char* name : {"embed", "head"}) {
      const Floats w = values(s.model, name);
      out.insert(out.end(), w.begin(), w.end());
    }
    return out;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Rollback, ReturnsIntoAStep) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(cpu));
  TrainOptions o = adamw(lm);
  o.accumulation = 3;
  Trainer t = must(Trainer::create(lm.model, cpu, o));
  must(t.micro_step(lm.data(0)));
  ASSERT_OK(t.snapshot());
  std::vector<Floats> ends;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(t.accumulated(), 1u);
    must(t.micro_step(lm.data(1)));
    EXPECT_EQ(must(t.micro_step(lm.data(2)))->step, 1u);
    ends.push_back(values(lm.model, "embed.weight"));
    must(train_step(t, lm, 3, 3));  // other gradients
    ASSERT_OK(t.rollback());
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(Rollback, NewParametersAreRefused) {
  Seed s = lm32();
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(s.model.to(cpu));
  Trainer t = must(Trainer::create(s.model, cpu, plain_sgd(0.1f)));
  EXPECT_EQ(t.rollback().message(), "There is no snapshot to roll back to.");
  ASSERT_OK(t.snapshot());
  const Dims one = {1};
  must(s.model.parameter("new", one, Init::ones()));
  EXPECT_EQ(t.rollback().message(),
            "The snapshot has 2 parameters, but the model has 3: some were declared later.");
}

// rollback() never allocates new blocks beside the old blocks, and records nothing again.
TEST(Rollback, WritesInPlaceAsResumeDoes) {
  const std::string path = testing::TempDir() + "bowline_place_" + std::to_string(getpid());
  Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(cpu));
  Trainer t = must(Trainer::create(lm.model, cpu, adamw(lm)));
  must(train_step(t, lm, 0));
  ASSERT_OK(t.snapshot());
  ASSERT_OK(t.save(path, {}));
  const std::vector<std::byte> right = all_bytes(lm.model);
  for (const bool from_file : {false, true}) {
    must(train_step(t, lm, 1));
    cpu.reset_counters();
    const uint64_t live = cpu.counters().live_bytes;
    ASSERT_OK(from_file ? t.resume(path).status() : t.rollback());
    EXPECT_EQ(all_bytes(lm.model).size(), right.size());
    must(train_step(t, lm, 1));
    EXPECT_EQ(cpu.counters().peak_bytes, live);
    EXPECT_EQ(cpu.counters().records + cpu.counters().allocations, 0u);
    EXPECT_EQ(t.counters().recordings, 3u);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bowline::test
