// Random models: the seed determines them, correct devices pass, and a faulty kernel is found with
// a small model that shows the fault.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "api/internals.h"
#include "conformance/oracle_device.h"
#include "conformance/random/patterns.h"
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

// Shrinking removes everything that the predicate does not need.
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
    // A remaining Repeat contains the Tanh or a parameter, because a model needs at least one
    // parameter.
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

void count_ops(const random::Graph& g, std::map<Op, int>& out) {
  for (const random::Node& n : g.nodes) {
    ++out[n.op];
    for (const random::Graph& body : n.body) {
      count_ops(body, out);
    }
  }
}

// Usable models contain all patterns of the cases.
TEST(Random, DrawsEveryOperator) {
  std::map<Op, int> wanted, used;
  for (const auto& of_one : random::patterns()) {
    ++wanted[of_one[0].op];
  }
  ASSERT_GT(wanted.size(), 70u);
  const auto all_used = [&] {
    return std::ranges::all_of(wanted, [&](const auto& w) { return used.contains(w.first); });
  };
  uint64_t seed = 0;
  for (; seed < 6000 && !all_used(); ++seed) {
    random::Recipe recipe = random::draw_recipe(seed);
    ASSERT_TRUE(random::tidy(recipe).ok());
    std::map<Op, int> ops;
    count_ops(recipe.loss, ops);
    const bool has_new =
        std::ranges::any_of(ops, [&](const auto& o) { return !used.contains(o.first); });
    if (has_new && random::expect(recipe, true).ok()) {
      used.merge(ops);
    }
  }
  for (const auto& [op, n] : wanted) {
    EXPECT_TRUE(used.contains(op)) << name_of(op);
  }
}

template <class Visit>
void each_attention(const random::Graph& g, const Visit& visit) {
  for (const random::Node& n : g.nodes) {
    if (n.op == Op::Attention) {
      const Attributes attributes = attributes_from(n.op, n.attributes).value();
      visit(attributes.as<AttentionAttributes>(), g.shape(n.inputs[0]), g.shape(n.inputs[1]));
    }
    for (const random::Graph& body : n.body) {
      each_attention(body, visit);
    }
  }
}

// Returns the kinds of an attention node as words.
std::vector<std::string> kinds_of(const AttentionAttributes& t, const Shape& q, const Shape& k) {
  const auto window = static_cast<int64_t>(t.window());
  const std::string capped = t.softcap() != 0 ? ", capped" : "";
  std::vector<std::string> out = {format("mask {}{}", static_cast<int>(t.mask()), capped)};
  if (window != 0) {
    const std::string size = window < k[1] ? "shorter" : window == k[1] ? "as long" : "longer";
    out.push_back(format("window {} than keys{}", size, capped));
    out.push_back(format("window {} than keys, mask {}", size, static_cast<int>(t.mask())));
  }
  if (window == 1) {
    out.push_back("window of one key" + capped);
  }
  if (k[2] < q[2]) {
    out.push_back("grouped heads" + capped);
  }
  if (t.causal() && k[1] != q[1]) {
    out.push_back(format("{} keys, {}", k[1] > q[1] ? "more" : "fewer",
                         window == 0   ? "no window"
                         : window == 1 ? "window of one"
                                       : "window"));
  }
  return out;
}

// Returns usable models with an attention node that satisfies `wanted`.
template <class Wanted>
std::vector<random::Recipe> recipes_with_attention(size_t number, const Wanted& wanted) {
  std::vector<random::Recipe> out;
  for (uint64_t seed = 0; out.size() < number && seed < 20000; ++seed) {
    random::Recipe recipe = random::draw_recipe(seed);
    bool has = false;
    EXPECT_TRUE(random::tidy(recipe).ok());
    each_attention(recipe.loss, [&](const AttentionAttributes& t, const Shape&, const Shape& k) {
      has = has || wanted(t, k);
    });
    if (has && random::expect(recipe, true).ok()) {
      out.push_back(std::move(recipe));
    }
  }
  EXPECT_EQ(out.size(), number);
  return out;
}

TEST(Random, DrawsEveryKindOfAttention) {
  std::set<std::string> missing;
  for (const char* const capped : {"", ", capped"}) {
    for (const char* const size : {"shorter", "as long", "longer"}) {
      missing.insert(format("window {} than keys{}", size, capped));
    }
    for (const char* const kind : {"window of one key", "grouped heads"}) {
      missing.insert(std::string(kind) + capped);
    }
  }
  for (const int mask : {0, 1, 2, 3}) {
    missing.insert(format("mask {}", mask));
    missing.insert(format("mask {}, capped", mask));
    missing.insert(format("window shorter than keys, mask {}", mask));
  }
  for (const char* const keys : {"more", "fewer"}) {
    for (const char* const window : {"no window", "window of one", "window"}) {
      missing.insert(format("{} keys, {}", keys, window));
    }
  }
  for (uint64_t seed = 0; seed < 20000 && !missing.empty(); ++seed) {
    random::Recipe recipe = random::draw_recipe(seed);
    ASSERT_TRUE(random::tidy(recipe).ok());
    std::vector<std::string> kinds;
    each_attention(recipe.loss, [&](const AttentionAttributes& t, const Shape& q, const Shape& k) {
      std::ranges::copy_if(kinds_of(t, q, k), std::back_inserter(kinds),
                           [&](const std::string& kind) { return missing.contains(kind); });
    });
    if (!kinds.empty() && random::expect(recipe, true).ok()) {
      for (const std::string& kind : kinds) {
        missing.erase(kind);
      }
    }
  }
  for (const std::string& kind : missing) {
    ADD_FAILURE() << kind;
  }
}

// A fault in the attributes of one operator.
Fault of_attention(Op op, void (*change)(AttentionAttributesT& t)) {
  Fault out;
  out.name = "attributes of attention";
  out.before = [op, change](OracleCall& c) {
    if (c.op == op) {
      AttentionAttributesT t;
      c.attributes.as<AttentionAttributes>().UnPackTo(&t);
      change(t);
      c.attributes = Attributes::of(t);
    }
  };
  return out;
}

size_t found_in(const std::vector<random::Recipe>& recipes, const Fault& fault) {
  const Device device = Internals::device(open_oracle_device(fault));
  size_t found = 0;
  for (const random::Recipe& recipe : recipes) {
    const auto wanted = random::expect(recipe, true);
    const auto got = random::train_on(device, recipe, true);
    EXPECT_TRUE(got.ok()) << got.status().message();
    bool differs = false;
    for (size_t s = 0; got.ok() && s < got.value().size(); ++s) {
      const std::vector<double>& right = wanted.value().exact[s].values;
      for (size_t i = 0; i < right.size(); ++i) {
        differs = differs || random::units_off(right[i], wanted.value().bound[s][i],
                                               got.value()[s].values[i]) > 1;
      }
    }
    found += differs ? 1 : 0;
  }
  return found;
}

TEST(Random, AWindowThatIsOneOffIsFound) {
  const auto recipes = recipes_with_attention(24, [](const AttentionAttributes& t, const Shape& k) {
    return t.window() != 0 && t.window() + 1 < k[1];
  });
  for (const Op op : {Op::Attention, Op::AttentionGrad}) {
    EXPECT_EQ(found_in(recipes, of_attention(op, [](AttentionAttributesT&) {})), 0u);
    EXPECT_GE(found_in(recipes,
                       of_attention(
                           op, [](AttentionAttributesT& t) { t.window += t.window != 0 ? 1 : 0; })),
              12u)
        << name_of(op);
  }
}

// Forward and backward use the same cap. A different cap makes the gradient very wrong.
TEST(Random, ACapThatIsLeftOutIsFound) {
  const auto recipes = recipes_with_attention(24, [](const AttentionAttributes& t, const Shape& k) {
    return t.softcap() != 0 && t.softcap() < 1 && t.window() != 1 && k[1] > 1;
  });
  for (const Op op : {Op::Attention, Op::AttentionGrad}) {
    EXPECT_GE(found_in(recipes, of_attention(op, [](AttentionAttributesT& t) { t.softcap = 0; })),
              12u)
        << name_of(op);
  }
}

random::Recipe in_precision(random::Recipe recipe, uint64_t number) {
  constexpr std::optional<DType> kComputed[] = {{}, DType::bf16, DType::f16};
  recipe.options.precision.compute_dtype = kComputed[number % 3];
  return recipe;
}

std::vector<random::Recipe> usable_recipes(size_t number) {
  std::vector<random::Recipe> out;
  for (uint64_t seed = 0; out.size() < number; ++seed) {
    random::Recipe recipe = random::draw_recipe(seed);
    if (random::tidy(recipe).ok() && random::expect(recipe, true).ok()) {
      out.push_back(in_precision(std::move(recipe), out.size()));
    }
  }
  return out;
}

std::string bits_of(const Result<random::Observation>& seen) {
  std::string out = seen.status().message();
  for (size_t s = 0; seen.ok() && s < seen.value().size(); ++s) {
    const random::Series& series = seen.value()[s];
    out += series.name;
    out.append(reinterpret_cast<const char*>(series.values.data()), series.values.size() * 8);
  }
  return out;
}

// Recomputation, placement in memory and the order of independent records do not change any bit,
// with 16 bits, too.
TEST(Random, PlansGiveTheSameBitsInAnyPrecision) {
  int less = 0, refused = 0;
  for (const random::Recipe& recipe : usable_recipes(60)) {
    const Device device = test::open_test_device("cpu");
    const auto right = random::train_on(device, recipe, true);
    ASSERT_TRUE(right.ok()) << right.status().message() << random::print_recipe(recipe, true);
    for (const char* name : {"opaque", "moving", "reordering"}) {
      EXPECT_EQ(bits_of(random::train_on(test::open_test_device(name), recipe, true)),
                bits_of(right))
          << name << "\n"
          << random::print_recipe(recipe, true);
    }
    const uint64_t peak = device.counters().peak_bytes;
    for (uint64_t budget = peak - 1; budget > peak / 2; budget -= peak / 10) {
      const Device small = test::open_test_device("cpu", 1, budget);
      const auto got = random::train_on(small, recipe, true);
      if (got.status().code() == Code::over_budget) {
        ++refused;
        break;
      }
      ++less;
      EXPECT_LE(small.counters().peak_bytes, budget);
      EXPECT_EQ(bits_of(got), bits_of(right)) << budget << " bytes\n"
                                              << random::print_recipe(recipe, true);
    }
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GT(less, 10);
  EXPECT_GT(refused, 10);
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

// A kernel overwrites gradients instead of adding to them. A sum of two uses is sufficient to show
// it.
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
