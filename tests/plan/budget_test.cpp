// The budget of a plan. Session::create() refuses a plan beyond the default budget or the budget of
// the caller, and the message gives the numbers.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// Returns a model that applies a body of `nodes` nodes to x `count` times.
Model looped(int count, int nodes) {
  Model m;
  GraphBuilder g(m, "loop");
  const Value x = g.input("x", DType::f32, {1000});
  const auto y = g.repeat(count, {x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
    Value v = c[0];
    for (int i = 0; i < nodes; ++i) {
      v = b.op("Tanh", {v});
    }
    return std::vector<Value>{v};
  });
  g.output("y", y.at(0));
  EXPECT_OK(g.finish());
  return m;
}

Status create(int count, int nodes, const Budget& budget = Budget::of_plan()) {
  const Device cpu = open_test_device("cpu");
  Model m = looped(count, nodes);
  EXPECT_OK(m.to(cpu));
  return Session::create(m, cpu, "loop", {}, budget).status();
}

TEST(Budget, CountsTheNodesOfAllIterations) {
  // Each iteration counts the nodes of the body and one for itself.
  Budget budget;
  budget.nodes = 100 * 11;
  EXPECT_OK(create(100, 10, budget));
  --budget.nodes;
  const Status s = create(100, 10, budget);
  EXPECT_EQ(s.code(), Code::over_budget);
  EXPECT_EQ(
      s.message(),
      "1100 nodes exceed the budget of 1099.\n- While counting the nodes that one run executes.");
  EXPECT_EQ(create(65536, 20).message(),
            "1376256 nodes exceed the budget of 1048576.\n- While counting the nodes that one run "
            "executes.");
}

TEST(Budget, CountsTheBytesOfTheArena) {
  const Device cpu = open_test_device("cpu");
  Model m = looped(3, 2);
  ASSERT_OK(m.to(cpu));
  const MemoryReport memory = must(Session::create(m, cpu, "loop", {})).memory();
  Budget budget;
  // The per-step scalars are not a part of the plan.
  budget.bytes = memory.arena_bytes + 2 * 4032;
  EXPECT_OK(Session::create(m, cpu, "loop", {}, budget).status());
  --budget.bytes;
  const Status s = Session::create(m, cpu, "loop", {}, budget).status();
  EXPECT_EQ(s.code(), Code::over_budget);
  EXPECT_EQ(s.message(),
            format("{} bytes of memory exceed the budget of {}.\n- While placing inputs "
                   "and outputs.",
                   budget.bytes + 1, budget.bytes));
}

TEST(Budget, HoldsForEachPlanOfATrainer) {
  const Device cpu = open_test_device("cpu");
  Seed s = universal(50);
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.001f);
  o.budget.nodes = 150;
  const Status refused = Trainer::create(s.model, cpu, o).status();
  EXPECT_EQ(refused.code(), Code::over_budget);
  EXPECT_NE(refused.message().find("nodes exceed the budget of 150."), std::string::npos)
      << refused.message();
  o.budget.nodes = 1000;
  EXPECT_OK(Trainer::create(s.model, cpu, o).status());
}

TEST(Budget, HoldsForTheTimeOfPlanning) {
  Budget budget;
  budget.seconds = 1e-12;
  const Status s = create(3, 200, budget);
  EXPECT_EQ(s.code(), Code::over_budget);
  EXPECT_NE(s.message().find("seconds exceed the budget of 1e-12."), std::string::npos)
      << s.message();
}

}  // namespace
}  // namespace bowline::test
