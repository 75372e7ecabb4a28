// Random models: that they are what the seed says, that devices which move things pass, that a wrong
// kernel is found and the model that shows it is small.
#include <gtest/gtest.h>

#include "conformance/oracle_device.h"
#include "conformance/random/reference.h"
#include "conformance/suite.h"
#include "ties/test_devices.h"

namespace bowline::conformance {
namespace {

size_t count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

TEST(Random, TheSeedDecides) {
  const std::string once = random::print_recipe(random::draw_recipe(5), true);
  EXPECT_EQ(random::print_recipe(random::draw_recipe(5), true), once);
  EXPECT_NE(random::print_recipe(random::draw_recipe(6), true), once);
}

TEST(Random, BoundsAreThoseOfTheOperators) {
  EXPECT_EQ(random::units_off(1, 0, 1), 0);
  EXPECT_EQ(random::units_off(0.1, 0, static_cast<double>(0.1f)), 0);
  EXPECT_EQ(random::units_off(1, 0, 1.0000001), std::numeric_limits<double>::infinity());
  EXPECT_EQ(random::units_off(1, 0.5, 2), 2);
  EXPECT_EQ(random::units_off(1, 0.5, std::numeric_limits<double>::quiet_NaN()),
            std::numeric_limits<double>::infinity());
  // P(|D| > t s') <= 2 (1 + t^2 / kLanes)^(-kLanes / 2)
  EXPECT_NEAR(
      2 * std::pow(1 + random::kReach * random::kReach / random::kLanes, -random::kLanes / 2.0) *
          1e9,
      1, 0.1);
}

// What shrinks is what the predicate does not need.
TEST(Random, ShrinksToWhatFails) {
  const auto has_tanh_in_body = [](const random::Recipe& r) {
    return std::ranges::any_of(r.loss.nodes, [](const random::Node& n) {
      return !n.body.empty() && std::ranges::any_of(n.body[0].nodes, [](const random::Node& m) {
        return m.kind == random::Node::Kind::op && m.op == Op::Tanh;
      });
    });
  };
  int shrunk = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    random::Recipe recipe = random::draw_recipe(seed);
    ASSERT_TRUE(random::tidy(recipe).ok());
    if (!has_tanh_in_body(recipe)) {
      continue;
    }
    ++shrunk;
    const random::Recipe small = random::shrink(recipe, has_tanh_in_body, 2000);
    EXPECT_TRUE(has_tanh_in_body(small));
    const std::string text = random::print_recipe(small, true);
    EXPECT_EQ(count(text, ".repeat("), count(text, ".repeat(1, ")) << text;
    // A Repeat that is left has the Tanh, or a parameter, of which a model has one at least.
    EXPECT_TRUE(std::ranges::all_of(small.loss.nodes, [](const random::Node& n) {
      return n.body.empty() || std::ranges::any_of(n.body[0].nodes, [](const random::Node& m) {
               return m.op == Op::Tanh || m.kind == random::Node::Kind::parameter;
             });
    })) << text;
    EXPECT_EQ(count(text, "\"Tanh\""), 1u) << text;
    EXPECT_LE(count(text, ".op("), 6u) << text;
    EXPECT_EQ(count(text, "View{"), 0u) << text;
  }
  EXPECT_GT(shrunk, 3);
}

TEST(Random, DevicesThatMoveThingsPass) {
  for (const char* name : {"opaque", "moving", "reordering"}) {
    const auto report = run("random", test::open_test_device(name), {.models = 30});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report.value().passed, 30u);
    EXPECT_TRUE(report.value().ok()) << name << ": " << report.value().failures[0].what;
  }
}

TEST(Random, TheOraclesPass) {
  const auto report = run("random", open_oracle_device(), {.models = 30});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report.value().ok()) << report.value().failures[0].what;
}

// Gradients are overwritten instead of summed: the sum of two uses is enough to show it.
TEST(Random, AWrongKernelIsFoundAndTheModelIsSmall) {
  Fault fault;
  fault.name = "contributions overwrite";
  fault.after = [](OracleCall& c) {
    if (c.op == Op::AccumulateGrad) {
      c.result.outputs[0].values = c.inputs[1].values;
    }
  };
  const auto report = run("random", open_oracle_device(fault), {.models = 10});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_FALSE(report.value().ok());
  const Failure& first = report.value().failures[0];
  EXPECT_NE(first.where.find("of seed 0"), std::string::npos) << first.where;
  EXPECT_NE(first.what.find("GraphBuilder g(m, \"loss\");"), std::string::npos) << first.what;
  EXPECT_LE(count(first.what, ".op("), 8u) << first.what;
}

}  // namespace
}  // namespace bowline::conformance
