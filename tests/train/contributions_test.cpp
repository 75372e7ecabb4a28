// A storage with several uses, inside Repeats at any iteration and outside, trains like in the
// unrolled graph.
#include <cmath>
#include <map>

#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr int64_t kFeatures = 3;

// A use of a weight [3, 3]. `rows` shows the rows [first_row, first_row + 3) of the storage of
// `of`.
struct Tie {
  std::string use;
  std::string of;
  int64_t first_row = -1;  // -1: the same parameter under another name
};

// y = x before; 3 times y = tanh(y v_i) w_i; 2 times y = tanh(y z_i); y = y after; L = mean of y y.
// Each use has its own storage, except the ties. The storages of `of` are declared first.
struct Uses {
  std::vector<std::string> names = {"before", "v.0", "v.1", "v.2", "w.0",
                                    "w.1",    "w.2", "z.0", "z.1", "after"};
  std::vector<Tie> ties;
  int64_t rows = kFeatures;  // of the storages of `of`
};

// No step has the size of the learning rate if a gradient is next to zero.
const Optimizer kAdam = {"adamw", {{"weight_decay", 0}, {"eps", 1e-3f}}};

struct Options {
  bool repeat = true;
  Optimizer optimizer = {"sgd"};
  uint32_t accumulation = 1;
};

void declare(Model& m, const Uses& uses, std::map<std::string, Parameter>& out) {
  const auto make = [&](const std::string& name, int64_t rows) {
    if (!out.contains(name)) {
      out[name] = must(m.parameter(name, Dims{rows, kFeatures}, Init::normal(0.9f)));
    }
  };
  for (const std::string& name : uses.names) {
    const auto tie = std::ranges::find(uses.ties, name, &Tie::use);
    if (tie == uses.ties.end()) {
      make(name, kFeatures);
      continue;
    }
    make(tie->of, uses.rows);
    View view;
    if (tie->first_row >= 0) {
      view.row_start = tie->first_row;
      view.rows = kFeatures;
    }
    out[name] = must(m.tied_parameter(name, out[tie->of], view));
  }
}

Value product(GraphBuilder& g, Value y, Value weight, bool tanh) {
  const Value out = g.op("Linear", {y, weight});
  return tanh ? g.op("Tanh", {out}) : out;
}

Seed model_of(const Uses& uses, bool repeat) {
  Seed s;
  s.shape = {2, kFeatures};
  s.x = {0.3f, -0.7f, 1.1f, 0.9f, 0.2f, -0.4f};
  std::map<std::string, Parameter> p;
  declare(s.model, uses, p);
  const auto list = [&](const std::string& stem, int count) {
    ParameterList out;
    for (int i = 0; i < count; ++i) {
      out.items.push_back(p[stem + "." + std::to_string(i)]);
    }
    return out;
  };
  const ParameterList v = list("v", 3);
  const ParameterList w = list("w", 3);
  const ParameterList z = list("z", 2);
  GraphBuilder g(s.model, "loss");
  Value y = product(g, g.input("x", DType::f32, {2, kFeatures}), g.parameter(p["before"]), false);
  if (repeat) {
    y = g.repeat(3, {y}, [&](GraphBuilder& b, const std::vector<Value>& c) {
           const Value inner = product(b, c[0], b.parameter(v), true);
           return std::vector<Value>{product(b, inner, b.parameter(w), false)};
         }).at(0);
    y = g.repeat(2, {y}, [&](GraphBuilder& b, const std::vector<Value>& c) {
           return std::vector<Value>{product(b, c[0], b.parameter(z), true)};
         }).at(0);
  } else {
    for (size_t i = 0; i < 3; ++i) {
      y = product(g, product(g, y, g.parameter(v.items[i]), true), g.parameter(w.items[i]), false);
    }
    for (const Parameter& item : z.items) {
      y = product(g, y, g.parameter(item), true);
    }
  }
  y = product(g, y, g.parameter(p["after"]), false);
  g.output("loss", g.op("ReduceMean", {g.op("Mul", {y, y})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(7));
  return s;
}

// Returns the losses and norms of three steps, and the weights after them.
Floats trained(const Device& device, const Uses& uses, const Options& options) {
  Seed s = model_of(uses, options.repeat);
  EXPECT_OK(s.model.to(device));
  TrainOptions o = plain_sgd(0.1f);
  o.optimizer = options.optimizer;
  o.accumulation = options.accumulation;
  Trainer t = must(Trainer::create(s.model, device, o));
  Floats out;
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> batches[2];
    Floats other = s.x;
    other[0] += 1;
    batches[0] = s.batch();
    batches[1] = {tensor("x", s.shape, other)};
    std::vector<std::span<const Tensor>> spans(std::begin(batches), std::end(batches));
    spans.resize(options.accumulation);
    const StepReport r = must(t.step(spans));
    out.insert(out.end(), {r.loss, r.grad_norm});
  }
  for (const std::string& name : uses.names) {
    const Floats value = values(s.model, name);
    out.insert(out.end(), value.begin(), value.end());
  }
  return out;
}

void expect_as_unrolled(const Device& device, const Uses& uses, Options options) {
  std::string ties;
  for (const Tie& t : uses.ties) {
    ties += t.use + " = " + t.of + " ";
  }
  SCOPED_TRACE(ties);
  options.repeat = true;
  const Floats repeated = trained(device, uses, options);
  options.repeat = false;
  const Floats unrolled = trained(device, uses, options);
  ASSERT_EQ(repeated.size(), unrolled.size());
  EXPECT_GT(unrolled[1], 0.01f);
  for (size_t i = 0; i < repeated.size(); ++i) {
    expect_number(repeated[i], unrolled[i], {}, 1e-5);
  }
}

using Contributions = OnDevice;
BOWLINE_ON_ALL_DEVICES(Contributions);

TEST_P(Contributions, TwoListsOfOneRepeatAtDifferentIterations) {
  // y = p_0 q_0 p_1 q_1 x with q_0 = p_1 = 3: dp_0 = 45, d(q_0 p_1) = 30 + 30, dq_1 = 18.
  Seed s;
  s.shape = {1};
  s.x = {1};
  const Dims one = {1};
  const Parameter p0 = must(s.model.parameter("p.0", one, Init::ones()));
  const Parameter p1 = must(s.model.parameter("p.1", one, Init::ones()));
  const Parameter q0 = must(s.model.tied_parameter("q.0", p1));
  const Parameter q1 = must(s.model.parameter("q.1", one, Init::ones()));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {1});
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
    const Value inner = b.op("Mul", {c[0], b.parameter(ParameterList{{p0, p1}})});
    return std::vector<Value>{b.op("Mul", {inner, b.parameter(ParameterList{{q0, q1}})})};
  });
  ASSERT_EQ(y.size(), 1u);
  g.output("loss", g.op("ReduceSum", {y[0]}));
  ASSERT_OK(g.finish());
  ASSERT_OK(s.model.materialize(1));
  ASSERT_OK(set(s.model, "p.0", one, {2}));
  ASSERT_OK(set(s.model, "p.1", one, {3}));
  ASSERT_OK(set(s.model, "q.1", one, {5}));
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.01f)));
  const StepReport r = step(t, s);
  expect_number(r.loss, 90);
  expect_number(r.grad_norm, std::sqrt(45. * 45 + 60 * 60 + 18 * 18),
                {{57.08765, "one of two contributions is overwritten"}});
  expect_number(values(s.model, "p.1")[0], 2.4, {{2.7, "one of two contributions is overwritten"}});
}

// loss = sum(x w) + sum(w). The product is computed in 16 bits, the sum in f32. Both contribute to
// w.
TEST_P(Contributions, ThroughACastAndBesideIt) {
  for (const char* type : {"f16", "bf16"}) {
    Seed s;
    s.shape = {2, 3};
    s.x = {1, -2, 3, 4, 5, -6};
    const Dims shape = {3, 2};
    const Parameter w = must(s.model.parameter("w", shape, Init::ones()));
    GraphBuilder g(s.model, "loss");
    const Value x = g.op("Cast", {g.input("x", DType::f32, {2, 3})}, {{"to", type}});
    const Value narrow = g.op("Cast", {g.parameter(w)}, {{"to", type}});
    const Value y = g.op("Cast", {g.op("MatMul", {x, narrow})}, {{"to", "f32"}});
    g.output("loss", g.op("Add", {g.op("ReduceSum", {y}), g.op("ReduceSum", {g.parameter(w)})}));
    ASSERT_OK(g.finish());
    ASSERT_OK(s.model.materialize(1));
    ASSERT_OK(s.model.to(device_));
    TrainOptions o = plain_sgd(0.5f);
    o.precision.loss_scale = 1;
    Trainer t = must(Trainer::create(s.model, device_, o));
    const StepReport r = step(t, s);
    expect_number(r.loss, 16);  // 2 * 5 + 6
    // The column sums of x are 5, 3 and -3. The direct use adds 1.
    expect_number(r.grad_norm, std::sqrt(2. * (36 + 16 + 4)),
                  {{std::sqrt(6.), "what goes through the cast is missing"}});
    EXPECT_EQ(values(s.model, "w"), (Floats{-2, -2, -1, -1, 2, 2}));
  }
}

// loss = sum(w[1:] x b + floor(w[1:])). In 16 bits: an unused part of a Split, a broadcast factor,
// and an operator without gradient.
TEST_P(Contributions, OfPartsAndBroadcastsInSixteenBits) {
  for (const char* type : {"f16", "bf16"}) {
    Seed s;
    s.shape = {3};
    s.x = {2, 3, 4};
    const Parameter w = must(s.model.parameter("w", Dims{4}, Init::ones()));
    const Parameter b = must(s.model.parameter("b", Dims{1}, Init::ones()));
    GraphBuilder g(s.model, "loss");
    const auto narrow = [&](Value v) { return g.op("Cast", {v}, {{"to", type}}); };
    const Value x = narrow(g.input("x", DType::f32, {3}));
    g.op("Split", {narrow(g.parameter(w))}, {{"axis", 0}, {"sizes", {1, 3}}});
    const Value part = g.last_outputs()[1];
    const Value product = g.op("Mul", {g.op("Mul", {part, x}), narrow(g.parameter(b))});
    const Value y = g.op("Add", {product, g.op("Floor", {part})});
    g.output("loss", g.op("ReduceSum", {g.op("Cast", {y}, {{"to", "f32"}})}));
    ASSERT_OK(g.finish());
    ASSERT_OK(s.model.materialize(1));
    ASSERT_OK(s.model.to(device_));
    TrainOptions o = plain_sgd(0.5f);
    o.precision.loss_scale = 1;
    Trainer t = must(Trainer::create(s.model, device_, o));
    const StepReport r = step(t, s);
    expect_number(r.loss, 12);
    expect_number(r.grad_norm, std::sqrt(4.f + 9 + 16 + 81),
                  {{std::sqrt(29.f), "the factor that broadcasts gets nothing"}});
    EXPECT_EQ(values(s.model, "w"), (Floats{1, 0, -0.5f, -1}));
    EXPECT_EQ(values(s.model, "b"), (Floats{-3.5f}));
  }
}

// Three iterations of h = h w + low + n, n = n + n, low = the minimum of low (without gradient),
// lag = last, last = h. w reaches h at once, `last` after one iteration, `lag` after two, and n and
// low never. In the beginning x = low = n = last = lag.
TEST_P(Contributions, PassCarriedValuesThatNothingTrainedReaches) {
  Seed s;
  s.shape = {3};
  s.x = {2, 3, 4};
  const Parameter w = must(s.model.parameter("w", Dims{3}, Init::ones()));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {3});
  const Value n = g.op("Cast", {x}, {{"to", "i32"}});
  const Value rows = g.op("Sub", {n, g.op("ReduceMin", {n}, {{"axes", {0}}, {"keep_dims", true}})});
  const auto out = g.repeat(3, {x, x, x, n, x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
    const Value sum = b.op("Add", {c[4], b.op("Cast", {c[3]}, {{"to", "f32"}})});
    const Value h = b.op("Add", {b.op("Mul", {c[2], b.parameter(w)}), sum});
    const Value low =
        b.op("ScatterElements", {c[4], b.capture(rows), c[4]}, {{"reduction", "min"}});
    return std::vector<Value>{c[1], c[2], h, b.op("Add", {c[3], c[3]}), low};
  });
  g.output("loss", g.op("ReduceSum", {g.op("Add", {out[0], out[2]})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(s.model.materialize(1));
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.5f)));
  const StepReport r = step(t, s);
  expect_number(r.loss, 126);
  expect_number(r.grad_norm, 11 * std::sqrt(29.f),
                {{10 * std::sqrt(29.f), "what is reached after two iterations is missing"}});
  EXPECT_EQ(values(s.model, "w"), (Floats{-10, -15.5f, -21}));
}

TEST_P(Contributions, AnyTwoUsesOfOneStorage) {
  // Nine models with five ties each, like a tournament in which each pair meets once.
  const Uses all;
  const size_t n = all.names.size();
  for (size_t round = 0; round + 1 < n; ++round) {
    Uses uses;
    for (size_t k = 0; k < n / 2; ++k) {
      const size_t a = k == 0 ? n - 1 : (round + k) % (n - 1);
      const size_t b = (round + n - 1 - k) % (n - 1);
      uses.ties.push_back({all.names[std::max(a, b)], all.names[std::min(a, b)]});
    }
    expect_as_unrolled(device_, uses, {});
  }
}

TEST_P(Contributions, ManyUsesOfOneStorage) {
  const std::vector<Tie> cases[] = {
      {{"v.1", "w.0"}, {"v.2", "w.0"}},
      {{"w.0", "v.1"}, {"w.1", "v.2"}, {"v.0", "w.2"}},
      {{"v.2", "before"}, {"w.0", "before"}, {"z.1", "before"}, {"after", "before"}},
      {{"v.0", "z.1"}, {"w.2", "z.1"}, {"z.0", "v.2"}, {"w.1", "v.2"}},
  };
  for (const std::vector<Tie>& ties : cases) {
    for (const Optimizer& optimizer : {Optimizer{"sgd"}, kAdam}) {
      for (const uint32_t accumulation : {1u, 2u}) {
        Uses uses;
        uses.ties = ties;
        expect_as_unrolled(device_, uses, {true, optimizer, accumulation});
      }
    }
  }
}

TEST_P(Contributions, PartsOfOneStorage) {
  // Disjoint and overlapping rows of "whole" [8, 3]. Some rows have no use.
  const std::vector<Tie> cases[] = {
      {{"v.0", "whole", 0}, {"w.0", "whole", 3}},
      {{"w.0", "whole", 1}, {"v.1", "whole", 2}},
      {{"v.0", "whole", 5}, {"w.1", "whole", 3}, {"v.2", "whole", 4}},
      {{"before", "whole", 0}, {"v.1", "whole", 2}, {"w.0", "whole", 1}, {"after", "whole", 4}},
      {{"v.1", "whole", 3}, {"w.0", "whole", 3}, {"z.0", "whole", 0}},
  };
  for (const std::vector<Tie>& ties : cases) {
    for (const Optimizer& optimizer : {Optimizer{"sgd"}, kAdam}) {
      for (const uint32_t accumulation : {1u, 2u}) {
        Uses uses;
        uses.ties = ties;
        uses.rows = 8;
        expect_as_unrolled(device_, uses, {true, optimizer, accumulation});
      }
    }
  }
}

// The use through a Reshape contributes last, although the backward pass computes its product
// first. Only the order (2^25 - 2^25) + 1 gives the sum 1.
TEST_P(Contributions, AreAddedInTheOrderOfTheGraph) {
  Model m;
  const Dims shape = {1, 1};
  const Parameter w = must(m.parameter("w", shape, Init::ones()));
  GraphBuilder g(m, "loss");
  const auto input = [&](std::string_view name) { return g.input(name, DType::f32, {1, 1}); };
  const Value reshaped = g.op("Reshape", {g.parameter(w)}, {{"dims", std::vector<GraphDim>{1, 1}}});
  const Value a = g.op("MatMul", {input("a"), g.parameter(w)});
  const Value b = g.op("MatMul", {input("b"), g.parameter(w)});
  const Value c = g.op("MatMul", {input("c"), reshaped});
  g.output("loss", g.op("ReduceSum", {g.op("Add", {g.op("Add", {a, b}), c})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  Trainer t = must(Trainer::create(m, device_, plain_sgd(0)));
  Floats values[] = {{-33554432}, {33554432}, {1}};
  must(t.micro_step({{tensor("a", shape, values[0]), tensor("b", shape, values[1]),
                      tensor("c", shape, values[2])}}));
  Floats gradient(1);
  ASSERT_OK(t.gradient("w", tensor("", shape, gradient)));
  EXPECT_EQ(gradient[0], 1);
}

}  // namespace
}  // namespace bowline::test
