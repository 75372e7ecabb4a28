// Per-step scalars: their layout, and the values that a run gives for them.
#include "api/internals.h"
#include "exec/step_values.h"
#include "graph/op_table.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"
#include "train/optimizer.h"

namespace bowline::test {
namespace {

using plan::StepLayout;

// Expects that each scalar is aligned to its size and lies behind the head and the previous scalar.
void expect_apart(const StepLayout& layout) {
  uint64_t end = sizeof(device::StepHead);
  for (const StepLayout::Place& p : layout.places()) {
    EXPECT_GE(p.offset, end) << p.word->name;
    EXPECT_EQ(p.offset % size_of(p.word->type), 0u) << p.word->name;
    end = p.offset + size_of(p.word->type);
  }
  EXPECT_EQ(layout.bytes(), end);
}

TEST(StepLayout, KeepsTheWordsOfAnyTwoOperatorsApart) {
  for (int a = 0; a < kOps; ++a) {
    for (int b = 0; b < kOps; ++b) {
      StepLayout layout;
      layout.add(op_at(a));
      layout.add(op_at(b));
      expect_apart(layout);
    }
  }
}

TEST(StepLayout, HoldsAWordOfANameOnce) {
  StepLayout layout;
  const std::vector<uint32_t> sgd = layout.add(Op::Sgd);
  const std::vector<uint32_t> adam_w = layout.add(Op::AdamW);
  EXPECT_EQ(adam_w[step::adam_w::learning_rate.index], sgd[step::sgd::learning_rate.index]);
  EXPECT_EQ(adam_w[step::adam_w::non_finite.index], sgd[step::sgd::non_finite.index]);
  EXPECT_NE(adam_w[step::adam_w::bias_correction1.index], sgd[step::sgd::update.index]);
  // ClipByGlobalNorm writes the scalar that the optimizers read.
  EXPECT_FALSE(layout.find("non_finite")->written);
  const std::vector<uint32_t> clip = layout.add(Op::ClipByGlobalNorm);
  EXPECT_EQ(clip[step::clip_by_global_norm::non_finite.index], sgd[step::sgd::non_finite.index]);
  EXPECT_TRUE(layout.find("non_finite")->written);

  for (int i = 0; i < kOps; ++i) {
    const std::vector<uint32_t> offsets = layout.add(op_at(i));
    EXPECT_EQ(offsets, layout.add(op_at(i)));
    EXPECT_EQ(offsets.size(), step_words(op_at(i)).size());
  }
  expect_apart(layout);
  EXPECT_EQ(layout.find("seed")->word->type, StepType::u64);
  EXPECT_EQ(layout.find("sead"), nullptr);
}

TEST(StepValues, AreDefaultsUntilGiven) {
  StepLayout layout;
  layout.add(Op::AdamW);
  layout.add(Op::Dropout);
  exec::StepValues values(layout);
  EXPECT_EQ(values.get<float>("bias_correction2"), 1);
  EXPECT_OK(values.give({"bias_correction2", 0.1}));
  EXPECT_OK(values.give({"seed", UINT64_MAX}));
  EXPECT_OK(values.give({"counter", 4294967295.0}));
  EXPECT_EQ(values.get<float>("bias_correction2"), 0.1f);
  EXPECT_EQ(values.get<uint64_t>("seed"), UINT64_MAX);
  EXPECT_EQ(values.get<uint32_t>("counter"), UINT32_MAX);
  values.head().accumulate = 1;
  values.reset();
  EXPECT_EQ(values.get<float>("bias_correction2"), 1);
  EXPECT_EQ(values.get<uint64_t>("seed"), 0u);
  EXPECT_EQ(values.head().accumulate, 0u);
  EXPECT_OK(values.give({"seed", 5}));
  values.set("gradient_scale", 3.0f);  // no operator here has this scalar
  EXPECT_EQ(values.get<float>("gradient_scale"), 0);
}

TEST(StepValues, RefuseNumbersThatAWordDoesNotHold) {
  StepLayout layout;
  layout.add(Op::AdamW);
  layout.add(Op::Dropout);
  exec::StepValues values(layout);
  const auto message = [&](const StepScalar& value) {
    const Status s = values.give(value);
    EXPECT_EQ(s.ok() ? Code::bad_argument : s.code(), Code::bad_argument);
    return s.message();
  };
  EXPECT_EQ(message({"training", 0.5}),
            "Per-step scalar \"training\" is a u32, which cannot hold 0.5.");
  EXPECT_EQ(message({"training", -1}),
            "Per-step scalar \"training\" is a u32, which cannot hold -1.");
  EXPECT_EQ(message({"counter", uint64_t{1} << 32}),
            "Per-step scalar \"counter\" is a u32, which cannot hold 4294967296.");
  EXPECT_EQ(message({"seed", 0x1p64}),
            "Per-step scalar \"seed\" is a u64, which cannot hold 18446744073709551616.");
  EXPECT_NE(message({"learning_rate", 1e39}), "");
  EXPECT_NE(message({"learning_rate", std::nan("")}), "");
  // A refused value does not count as given.
  EXPECT_EQ(message({"training", 1}), "");
  EXPECT_EQ(message({"training", 1}), "Per-step scalar \"training\" is given twice.");
}

// A trainer gives the learning rate. A run without it fails, because the scalar has no default.
TEST(StepValues, AWordWithoutADefaultMustBeGiven) {
  const Device cpu = open_test_device("cpu");
  Seed s = universal(50);
  ASSERT_OK(s.model.to(cpu));
  params::Table table = Internals::state(s.model)->table;
  TrainOptions options;
  train::add_rows(table, options);
  StepLayout layout;
  layout.add(Op::Dropout);  // belongs to another segment
  const plan::Plan plan = must(plan::lower(must(train::update_graph(table, options, {})), "update",
                                           *Internals::open(cpu), layout));
  for (const device::Record& r : plan.program.records) {
    StepLayout same = layout;
    EXPECT_EQ(r.step, same.add(r.op));
    EXPECT_EQ(same.bytes(), layout.bytes());
  }
  exec::StepValues values(layout);
  const Status missing = values.check(plan);
  EXPECT_EQ(missing.code(), Code::bad_argument);
  const auto update = std::ranges::find(plan.program.records, Op::AdamW, &device::Record::op);
  ASSERT_NE(update, plan.program.records.end());
  EXPECT_EQ(
      missing.message(),
      format("Per-step scalar \"learning_rate\" (f32) of {} has no default, and no value is given.",
             plan.nodes[update->node]));
  EXPECT_OK(values.give({"learning_rate", 1}));
  EXPECT_OK(values.check(plan));
}

constexpr int64_t kElements = 37;

Model dropout_model() {
  Model m;
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {kElements});
  g.output("y", g.op("Dropout", {x}, {{"rate", 0.5}, {"stream", 3}}));
  EXPECT_OK(g.finish());
  return m;
}

// Computes Dropout with the oracle. With a rate of 1/2 no result is rounded.
Floats dropped(const Floats& x, uint32_t training, uint64_t seed, uint32_t counter) {
  const Attributes attributes =
      must(attributes_from(Op::Dropout, std::vector<Attribute>{{"rate", 0.5}, {"stream", 3}}));
  const Shape shape{kElements};
  const OracleContext::Array in{shape, {x.begin(), x.end()}};
  OracleContext::Array out{shape, std::vector<double>(x.size())};
  std::vector<double> magnitude;
  OracleContext::Outcome outcome;
  const uint64_t words[] = {training, seed, counter};
  op_def(Op::Dropout)
      .oracle(OracleContext(attributes, {&in, 1}, {&out, 1}, {&magnitude, 1}, {}, words, outcome));
  return {out.values.begin(), out.values.end()};
}

class StepWords : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    for (int64_t i = 0; i < kElements; ++i) {
      x_.push_back(static_cast<float>(i + 1));
    }
    y_.resize(x_.size());
  }
  Status run(Session& s, const std::vector<StepScalar>& steps) {
    const Dims shape = {kElements};
    const Tensor in = tensor("x", shape, x_), out = tensor("y", shape, y_);
    return s.run({&in, 1}, {&out, 1}, steps);
  }
  Floats x_, y_;
};
BOWLINE_ON_ALL_DEVICES(StepWords);

TEST_P(StepWords, AreGivenToOneRun) {
  Model m = dropout_model();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  for (const uint64_t seed : {uint64_t{7}, uint64_t{7} << 32}) {
    for (const uint32_t counter : {0u, 9u}) {
      ASSERT_OK(run(s, {{"training", 1}, {"seed", seed}, {"counter", counter}}));
      EXPECT_EQ(y_, dropped(x_, 1, seed, counter));
      EXPECT_NE(y_, x_);
    }
  }
  ASSERT_OK(run(s, {}));
  EXPECT_EQ(y_, x_);
}

TEST_P(StepWords, ThatARunRefusesChangeNothing) {
  Model m = dropout_model();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  ASSERT_OK(run(s, {}));
  const uint64_t submits = s.counters().submits;
  const Status unknown = run(s, {{"training", 1}, {"sead", 7}});
  EXPECT_EQ(unknown.code(), Code::bad_argument);
  EXPECT_EQ(unknown.message(),
            "There is no per-step scalar \"sead\"; the graph has: training (u32), seed (u64), "
            "counter (u32).");
  EXPECT_EQ(run(s, {{"training", 2.5}}).code(), Code::bad_argument);
  EXPECT_EQ(s.counters().submits, submits);
  EXPECT_EQ(y_, x_);
  ASSERT_OK(run(s, {}));  // the refused values have no effect
  EXPECT_EQ(y_, x_);
}

}  // namespace
}  // namespace bowline::test
