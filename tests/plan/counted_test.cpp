// Dynamic dimensions: compares one plan for every length with plans that are bound to the length.
#include "graph/op_table.h"
#include "plan/counted_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// Matrix products choose their blocks by the number of rows. Sums of a few dozen terms can
// therefore be rounded in another order.
constexpr float kTolerance = 2e-5f;

void expect_near(const Floats& got, const Floats& wanted, const std::string& where) {
  ASSERT_EQ(got.size(), wanted.size()) << where;
  for (size_t i = 0; i < got.size(); ++i) {
    const float bound = kTolerance * std::max(1.0f, std::abs(wanted[i]));
    ASSERT_TRUE(std::abs(got[i] - wanted[i]) <= bound)
        << where << ", element " << i << ": " << got[i] << ", not " << wanted[i];
  }
}

// Returns the lengths 1 to the capacity in random order, but the capacity first. Its run leaves
// stale data behind all shorter lengths.
std::vector<int64_t> lengths(Draw& draw) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n < kCapacity; ++n) {
    out.insert(out.begin() + draw.below(n), n);
  }
  out.insert(out.begin(), kCapacity);
  out.push_back(1);
  return out;
}

class Counted : public OnDevice {
 protected:
  // Returns the model on the device, with a dynamic or a bound dimension.
  template <class Build>
  Model model(bool counted, Build build) {
    Model m = with_seq(counted);
    build(m);
    EXPECT_OK(m.materialize(7));
    if (m.find("poison").ok()) {
      poison(m);
    }
    EXPECT_OK(m.to(device_));
    return m;
  }
  // Runs one session with all lengths. `run(session, n)` returns the values of an output.
  template <class Build, class Run>
  void expect_one_plan(const char* entry, std::vector<BoundDim> dims, Build build, Run run) {
    const Model counted = model(true, build);
    const Model bound = model(false, build);
    dims.push_back({"seq", kCapacity});
    Session one = must(Session::create(counted, device_, entry, dims));
    Draw draw(11);
    for (const int64_t n : lengths(draw)) {
      dims.back().value = n;
      Session exact = must(Session::create(bound, device_, entry, dims));
      expect_near(run(one, n), run(exact, n), format("length {}", n));
    }
    EXPECT_EQ(one.counters().plan_builds, 1u);
    EXPECT_EQ(one.counters().recordings, 1u);
  }
};
BOWLINE_ON_ALL_DEVICES(Counted);

Floats logits(Session& s, Ids ids, int64_t batch) {
  const auto n = static_cast<int64_t>(ids.size()) / batch;
  Floats out(static_cast<size_t>(batch * n * kClasses));
  const Tensor in = tensor("ids", {batch, n}, ids);
  const Tensor to = tensor("logits", {batch, n, kClasses}, out);
  EXPECT_OK(s.run({&in, 1}, {&to, 1}));
  return out;
}

TEST_P(Counted, ADecoderHasOnePlanForEveryLength) {
  const auto build = [](Model& m) {
    Decoder d(m);
    add_prefill(m, d);
  };
  expect_one_plan("prefill", {{"batch", 2}}, build, [](Session& s, int64_t n) {
    return logits(s, Draw(static_cast<uint64_t>(n)).ids(2 * n, kClasses), 2);
  });
}

// Runs a graph with the input "ids" of poisoned(), or without it.
Floats run_rows(Session& s, int64_t n, int64_t batch, const Dims& y_shape, int64_t y_size,
                bool poisoned = true) {
  // Longer runs get larger values, so that stale data of a longer run would change a maximum.
  Draw draw(static_cast<uint64_t>(n));
  Floats x = draw.floats(batch * n * 4, static_cast<float>(n));
  Ids ids = draw.ids(n, 2);
  for (int32_t& id : ids) {
    ++id;
  }
  Floats y(static_cast<size_t>(y_size));
  const Tensor in[] = {tensor("x", {batch, n, 4}, x), tensor("ids", {n}, ids)};
  const Tensor out = tensor("y", y_shape, y);
  EXPECT_OK(s.run(std::span(in).first(poisoned ? 2 : 1), {&out, 1}));
  return y;
}

// x [batch, seq, 4] plus rows of a table by "ids". Rows behind the actual length are NaN, so an
// operator that mixes rows must not read them.
Value poisoned(GraphBuilder& g, Model& m, Value x) {
  const Value ids = g.input("ids", DType::i32, {"seq"});
  return g.op("Add", {x, g.op("Embedding", {g.parameter(poisonous_table(m)), ids})});
}

TEST_P(Counted, WhatMixesRowsSeesNoneBehindTheCount) {
  const auto build = [](Model& m) {
    GraphBuilder g(m, "mix");
    const Value x = poisoned(g, m, g.input("x", DType::f32, {2, "seq", 4}));
    const Value scores = g.op("MatMul", {x, x}, {{"transpose_b", true}});
    const Value mixed = g.op("MatMul", {g.op("Softmax", {scores}), x});
    const Value heads = g.op("Reshape", {x}, {{"dims", {2, "seq", 1, 4}}});
    const Value all = g.op("Attention", {heads, heads, heads});
    const Value both = g.op("Add", {mixed, g.op("Reshape", {all}, {{"dims", {2, "seq", 4}}})});
    g.output("y", g.op("ReduceSum", {both}, {{"axes", {1}}}));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("mix", {}, build, [](Session& s, int64_t n) {
    return run_rows(s, n, 2, {2, 4}, 8);
  });
}

// Maximum, minimum, their indices, products, and cumulative sums from the end.
TEST_P(Counted, WhatReducesRowsSeesNoneBehindTheCount) {
  const auto build = [](Model& m) {
    GraphBuilder g(m, "reduce");
    const Value x = poisoned(g, m, g.input("x", DType::f32, {2, "seq", 4}));
    const std::vector<Attribute> rows = {{"axes", {1}}};
    const Value extremes =
        g.op("Sub", {g.op("ReduceMax", {x}, rows), g.op("ReduceMin", {x}, rows)});
    const Value place =
        g.op("Add", {g.op("ArgMax", {x}, {{"axis", 1}}), g.op("ArgMin", {x}, {{"axis", 1}})});
    const Value product = g.op("Tanh", {g.op("ReduceProd", {x}, rows)});
    const Value running = g.op("CumSum", {x}, {{"axis", 1}, {"reverse", true}});
    const Value some = g.op("Add", {g.op("ReduceSum", {running}, rows), product});
    g.output("y",
             g.op("Add", {g.op("Add", {extremes, some}), g.op("Cast", {place}, {{"to", "f32"}})}));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("reduce", {}, build, [](Session& s, int64_t n) {
    return run_rows(s, n, 2, {2, 4}, 8);
  });
}

// Gathers rows, and pads and copies along the other axes.
TEST_P(Counted, WhatMovesRowsKeepsTheirCount) {
  const auto build = [](Model& m) {
    GraphBuilder g(m, "move");
    const Value x = poisoned(g, m, g.input("x", DType::f32, {2, "seq", 4}));
    const Value wide =
        g.op("Pad", {x}, {{"begin", {0, 0, 1}}, {"end", {0, 0, 1}}, {"mode", "wrap"}});
    const Value twice = g.op("Tile", {wide}, {{"repeats", {1, 1, 2}}});
    const Value most = g.op("TopK", {twice}, {{"k", 3}});
    const Value rows = g.op("LogSoftmax", {g.op("Expand", {most}, {{"dims", {2, 1, 1, 1}}})});
    g.output("y", g.op("ReduceSum", {rows}, {{"axes", {0, 2}}}));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("move", {}, build, [](Session& s, int64_t n) {
    return run_rows(s, n, 2, {2, 3}, 6);
  });
}

// No operator masks an input that is summed directly: its tail is zero.
TEST_P(Counted, ASumOfAnInputIsThatOfTheRun) {
  const auto build = [](Model& m) {
    GraphBuilder g(m, "sum");
    const Value x = g.input("x", DType::f32, {2, "seq", 4});
    g.output("y", g.op("ReduceSum", {x}, {{"axes", {1}}}));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("sum", {}, build, [](Session& s, int64_t n) {
    return run_rows(s, n, 2, {2, 4}, 8, false);
  });
}

// The dynamic axis is not the first axis. The rows of the tensors of a run therefore lie closer
// together than the rows of the plan.
TEST_P(Counted, OutputsHaveAsManyElementsAsTheRun) {
  const auto build = [](Model& m) {
    GraphBuilder g(m, "turn");
    const Value x = g.input("x", DType::f32, {3, "seq", 4});
    const Value turned = g.op("Transpose", {x}, {{"permutation", {2, 0, 1}}});
    g.output("y", g.op("Tanh", {turned}));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("turn", {}, build, [](Session& s, int64_t n) {
    return run_rows(s, n, 3, {4, 3, n}, 12 * n, false);
  });
}

TEST_P(Counted, ALossIsTheMeanOfWhatIsThere) {
  const auto build = [](Model& m) {
    GraphBuilder g(m, "loss");
    const Value x = poisoned(g, m, g.input("x", DType::f32, {2, "seq", 4}));
    const Value labels = g.input("labels", DType::i32, {2, "seq"});
    g.output("y", g.op("CrossEntropy", {x, labels}));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("loss", {}, build, [](Session& s, int64_t n) {
    Draw draw(static_cast<uint64_t>(n));
    Floats x = draw.floats(2 * n * 4), y(1);
    Ids labels = draw.ids(2 * n, 4), ids(static_cast<size_t>(n), 1);
    const Tensor in[] = {tensor("x", {2, n, 4}, x), tensor("labels", {2, n}, labels),
                         tensor("ids", {n}, ids)};
    const Tensor out = tensor("y", {}, y);
    EXPECT_OK(s.run(in, {&out, 1}));
    return y;
  });
}

// A dynamic dimension inside a Repeat. The carried value keeps its length.
TEST_P(Counted, TheBodyOfARepeatIsCounted) {
  const auto build = [](Model& m) {
    // Weights are small, because Softmax amplifies the rounding errors of large scores.
    const ParameterList w = must(m.parameters("w.{}", 3, {4, 4}, Init::normal(0.25f)));
    GraphBuilder g(m, "layers");
    const Value x = poisoned(g, m, g.input("x", DType::f32, {2, "seq", 4}));
    const auto y = g.repeat(3, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
      const Value h = body.op("Linear", {in[0], body.parameter(w)});
      const Value scores = body.op("Softmax", {body.op("MatMul", {h, h}, {{"transpose_b", true}})});
      return std::vector<Value>{body.op("Add", {in[0], body.op("MatMul", {scores, h})})};
    });
    g.output("y", y.at(0));
    EXPECT_OK(g.finish());
  };
  expect_one_plan("layers", {}, build, [](Session& s, int64_t n) {
    return run_rows(s, n, 2, {2, n, 4}, 8 * n);
  });
}

// Only the body uses the dynamic dimension.
TEST_P(Counted, TheBodyOfARepeatMayNameADimAlone) {
  Model m = with_seq(true);
  const Parameter ones = must(m.parameter("ones", {kCapacity}, Init::ones()));
  GraphBuilder g(m, "sum");
  const Value x = g.input("x", DType::f32, {1});
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    const Value some = body.op("Slice", {body.parameter(ones)}, {{"axis", 0}, {"length", "seq"}});
    return std::vector<Value>{body.op("Add", {in[0], body.op("ReduceSum", {some})})};
  });
  g.output("y", y.at(0));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "sum", std::vector<BoundDim>{{"seq", kCapacity}}));
  Floats from = {1}, to = {0};
  const Tensor in = tensor("x", {1}, from), out = tensor("y", {1}, to);
  ASSERT_OK(s.run({&in, 1}, {&out, 1}, std::vector<StepScalar>{{"seq", 3}}));
  EXPECT_EQ(to[0], 7);
}

TEST_P(Counted, AGenerationIsThePrefillOfItsTokens) {
  Model m = with_seq(true);
  Decoder d(m);
  add_prefill(m, d);
  add_decode(m, d);
  ASSERT_OK(m.materialize(7));
  ASSERT_OK(m.to(device_));
  Session decode =
      must(Session::create(m, device_, "decode", std::vector<BoundDim>{{"kv_length", kCapacity}}));
  Session prefill = must(Session::create(m, device_, "prefill",
                                         std::vector<BoundDim>{{"batch", 1}, {"seq", kCapacity}}));
  for (const uint64_t text : {1u, 2u}) {  // the second text finds the states of the first
    const Ids ids = Draw(text).ids(kCapacity, kClasses);
    const Floats all = logits(prefill, ids, 1);
    for (int64_t t = 0; t < kCapacity; ++t) {
      Ids id = {ids[static_cast<size_t>(t)]}, at = {static_cast<int32_t>(t)};
      Floats out(kClasses);
      const Tensor in[] = {tensor("id", {1, 1}, id), tensor("at", {1, 1}, at)};
      const Tensor to = tensor("logits", {1, 1, kClasses}, out);
      ASSERT_OK(
          decode.run(in, {&to, 1}, std::vector<StepScalar>{{"position", t}, {"kv_length", t + 1}}));
      expect_near(out, Floats(all.begin() + t * kClasses, all.begin() + (t + 1) * kClasses),
                  format("text {}, token {}", text, t));
    }
  }
  EXPECT_EQ(decode.counters().plan_builds, 1u);
  EXPECT_EQ(decode.counters().recordings, 1u);
}

// A run writes only its actual rows into a state. All rows of the plan would not fit.
TEST_P(Counted, RowsOfAStateAreThoseThatAreThere) {
  Model m = with_seq(true);
  const Parameter state =
      must(m.parameter("state", {kCapacity, 4}, Init::zeros(), StorageRole::kv_cache));
  GraphBuilder g(m, "keep");
  const Value x = g.input("x", DType::f32, {1, "seq", 4});
  const Value rows = g.op("Reshape", {x}, {{"dims", {"seq", 4}}});
  g.output("y", g.op("WriteRows", {g.parameter(state), rows}, {{"axis", 0}}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "keep", std::vector<BoundDim>{{"seq", kCapacity}}));
  Floats expected(kCapacity * 4);
  for (const auto& [n, position] : {std::pair<int64_t, int64_t>{5, 0}, {3, 13}, {16, 0}, {1, 15}}) {
    Floats x_data = Draw(static_cast<uint64_t>(n)).floats(n * 4), y(expected.size());
    const Tensor in = tensor("x", {1, n, 4}, x_data), out = tensor("y", {kCapacity, 4}, y);
    ASSERT_OK(s.run({&in, 1}, {&out, 1}, std::vector<StepScalar>{{"position", position}}));
    std::ranges::copy(x_data, expected.begin() + position * 4);
    EXPECT_EQ(y, expected);
  }
  Floats x_data(12);
  const Tensor in = tensor("x", {1, 3, 4}, x_data);
  EXPECT_EQ(s.run({&in, 1}, {}, std::vector<StepScalar>{{"position", 14}}).code(),
            Code::index_out_of_range);
  EXPECT_EQ(values(m, "state"), expected);
}

// ---------------------------------------------------------------------------------------- refusals

// y = x + z with shapes [2, seq, 4] and [seq, 4]. seq is at least 2.
class CountedRun : public testing::Test {
 protected:
  void SetUp() override {
    GraphBuilder g(model_, "add");
    const Value x = g.input("x", DType::f32, {2, "seq", 4});
    const Value z = g.input("z", DType::f32, {"seq", 4});
    const Parameter pos = must(model_.parameter("pos", {20, 4}, Init::ones()));
    const Value some = g.op("Slice", {g.parameter(pos)}, {{"axis", 0}, {"length", "rows"}});
    g.output("y", g.op("Add", {x, z}));
    g.output("sum", g.op("ReduceSum", {some}));
    ASSERT_OK(g.finish());
    ASSERT_OK(model_.materialize(1));
    ASSERT_OK(model_.to(cpu_));
  }
  Status run(Session& s, int64_t x_rows, int64_t z_rows, const std::vector<StepScalar>& steps) {
    Floats x(static_cast<size_t>(8 * x_rows), 1), z(static_cast<size_t>(4 * z_rows), 2);
    Floats y(static_cast<size_t>(8 * x_rows));
    const Tensor in[] = {tensor("x", {2, x_rows, 4}, x), tensor("z", {z_rows, 4}, z)};
    const Tensor out[] = {tensor("y", {2, x_rows, 4}, y), tensor("sum", {}, sum_)};
    return s.run(in, out, steps);
  }
  Session session(const std::vector<BoundDim>& dims = {{"seq", 8}, {"rows", 20}}) {
    return must(Session::create(model_, cpu_, "add", dims));
  }
  static Model declared() {
    Model m = with_seq(true, 2);
    EXPECT_OK(m.set_dim_limits("rows", {.max = 20, .dynamic = true}));
    return m;
  }
  Model model_ = declared();
  Device cpu_ = open_test_device("cpu");
  Floats sum_ = Floats(1);
};

TEST_F(CountedRun, ANumberComesFromInputsOrAStepValueOrIsTheCapacity) {
  Session s = session();
  ASSERT_OK(run(s, 5, 5, {}));
  EXPECT_EQ(sum_[0], 80);
  ASSERT_OK(run(s, 5, 5, {{"rows", 3}}));
  EXPECT_EQ(sum_[0], 12);
  ASSERT_OK(run(s, 5, 5, {{"rows", 1}, {"seq", 5}}));
  EXPECT_EQ(sum_[0], 4);
  ASSERT_OK(run(s, 5, 5, {}));
  EXPECT_EQ(sum_[0], 80) << "a number is for one run";
}

TEST_F(CountedRun, RefusesNumbersOutsideTheLimits) {
  Session s = session();
  const auto refusal = [&](int64_t x, int64_t z, const std::vector<StepScalar>& steps) {
    const Status refused = run(s, x, z, steps);
    EXPECT_EQ(refused.code(), Code::bad_argument);
    return refused.message();
  };
  EXPECT_EQ(refusal(9, 9, {}),
            "Dim \"seq\" is 9 in this run, outside 2..8, the limits of the plan.\n"
            "- While checking input \"x\".");
  EXPECT_EQ(refusal(1, 1, {}),
            "Dim \"seq\" is 1 in this run, outside 2..8, the limits of the plan.\n"
            "- While checking input \"x\".");
  EXPECT_EQ(refusal(5, 4, {}), "Dim \"seq\" is 5 in input \"x\", but 4 in input \"z\".");
  EXPECT_EQ(refusal(5, 5, {{"seq", 4}}), "Dim \"seq\" is given as 4, but input \"x\" has 5.");
  EXPECT_EQ(refusal(5, 5, {{"rows", 21}}),
            "Dim \"rows\" is 21 in this run, outside 1..20, the limits of the plan.");
  EXPECT_EQ(refusal(5, 5, {{"rows", 0}}),
            "Dim \"rows\" is 0 in this run, outside 1..20, the limits of the plan.");
  EXPECT_EQ(refusal(5, 5, {{"rows", -1}}),
            "Per-step scalar \"rows\" is a u32, which cannot hold -1.");
  EXPECT_EQ(s.counters().submits, 0u);
  EXPECT_OK(run(s, 5, 5, {}));
}

TEST_F(CountedRun, ShapesBesidesTheCountsAreThoseOfThePlan) {
  Session s = session();
  Floats x(30), z(20);
  const Tensor in[] = {tensor("x", {2, 5, 3}, x), tensor("z", {5, 4}, z)};
  EXPECT_EQ(s.run(in, {}).message(), "Input \"x\" is f32[2,5,3], not f32[2,5,4].");
  Floats good(40), y(64);
  const Tensor right[] = {tensor("x", {2, 5, 4}, good), tensor("z", {5, 4}, z)};
  const Tensor out = tensor("y", {2, 8, 4}, y);
  EXPECT_EQ(s.run(right, {&out, 1}).message(), "Output \"y\" is f32[2,8,4], not f32[2,5,4].");
}

TEST_F(CountedRun, ACapacityLiesInsideTheLimits) {
  const auto refusal = [&](int64_t rows) {
    return Session::create(model_, cpu_, "add", std::vector<BoundDim>{{"seq", 8}, {"rows", rows}})
        .status()
        .message();
  };
  EXPECT_EQ(refusal(21), "Dim rows = 21 lies outside 1..20.");
  EXPECT_EQ(refusal(0), "Dim rows = 0 lies outside 1..20.");
}

TEST_F(CountedRun, TheListingNamesTheDims) {
  Session s = session();
  const std::string nodes = must(s.listing("forward"));
  EXPECT_NE(nodes.find("f32[2,seq<=8,4] = Add(in0, in1)"), std::string::npos) << nodes;
  EXPECT_NE(nodes.find(" = MaskTail("), std::string::npos) << nodes;
  EXPECT_NE(must(s.listing("build", true)).find(": u32 rows counted, up to 20\n"),
            std::string::npos);
}

// A declared dynamic dimension that no graph uses does not change the plan.
TEST(CountedPlan, IsThatOfBoundDimsWithoutThem) {
  const Device cpu = open_test_device("cpu");
  std::string listings[2];
  for (const bool declares : {false, true}) {
    Model m = with_seq(false);
    if (declares) {
      ASSERT_OK(m.set_dim_limits("other", {.dynamic = true}));
    }
    Decoder d(m);
    add_prefill(m, d);
    ASSERT_OK(m.materialize(7));
    ASSERT_OK(m.to(cpu));
    std::vector<BoundDim> dims = {{"batch", 2}, {"seq", 5}};
    Session s = must(Session::create(m, cpu, "prefill", dims));
    listings[declares ? 1 : 0] = must(s.listing("forward")) + must(s.listing("build", true));
  }
  EXPECT_EQ(listings[0], listings[1]);
}

struct Unsupported {
  const char* what;
  std::string sentence;
  std::function<Value(GraphBuilder&, Value x, Value table)> build;
};

TEST(CountedRules, RefuseWhatWouldSeeBehindTheCount) {
  const std::vector<Attribute> first = {{"axis", 0}};
  const Unsupported all[] = {
      {"a mean",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but the mean needs a static number of "
       "elements.",
       [](GraphBuilder& g, Value x, Value) { return g.op("ReduceMean", {x}); }},
      {"a row",
       "Axis 1 of input 0 is the dynamic dimension \"seq\", but the last axis must be static.",
       [](GraphBuilder& g, Value x, Value table) {
         const Value turned = g.op("Transpose", {x}, {{"permutation", {1, 0}}});
         return g.op("Linear", {turned, table});
       }},
      {"a part",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but a sliced axis must be static.",
       [&](GraphBuilder& g, Value x, Value) {
         return g.op("Slice", {x}, {{"axis", 0}, {"start", 1}});
       }},
      {"joined",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but the concatenated axis must be "
       "static.",
       [&](GraphBuilder& g, Value x, Value) {
         return g.op("Concat", {x, x}, first);
       }},
      {"gathered",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but an index may select any of its "
       "elements.",
       [&](GraphBuilder& g, Value x, Value) {
         return g.op("Gather", {x, g.op("ArgMax", {x}, {{"axis", 1}})}, first);
       }},
      {"padded",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but a padded axis must be static.",
       [](GraphBuilder& g, Value x, Value) {
         return g.op("Pad", {x}, {{"begin", {0, 0}}, {"end", {1, 0}}});
       }},
      {"repeated",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but a repeated axis must be static.",
       [](GraphBuilder& g, Value x, Value) {
         return g.op("Tile", {x}, {{"repeats", {2, 1}}});
       }},
      {"the most extreme",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but the axis of TopK must be static.",
       [&](GraphBuilder& g, Value x, Value) { return g.op("TopK", {x}, first); }},
      {"the last",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but the search for the last of equal "
       "elements needs all of it.",
       [](GraphBuilder& g, Value x, Value) {
         return g.op("ArgMax", {x}, {{"axis", 0}, {"last", true}});
       }},
      {"merged",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but the output [64] has no axis that "
       "corresponds to it in [16,4].",
       [](GraphBuilder& g, Value x, Value) {
         return g.op("Reshape", {x}, {{"dims", {-1}}});
       }},
      {"met",
       "Axis 0 of input 0 is the dynamic dimension \"seq\", but axis 0 of input 1 does not match "
       "it.",
       [](GraphBuilder& g, Value x, Value) {
         const Value whole = g.op("Reshape", {x}, {{"dims", {"seq", 4}}});
         const Value fixed = g.input("fixed", DType::f32, {kCapacity, 4});
         return g.op("Add", {whole, fixed});
       }},
  };
  const Device cpu = open_test_device("cpu");
  for (const Unsupported& u : all) {
    Model m;
    ASSERT_OK(
        m.set_dim_limits("seq", {.min = kCapacity, .dynamic = true}));  // the probe is the capacity
    const Parameter table = must(m.parameter("table", {3, kCapacity}, Init::ones()));
    GraphBuilder g(m, "g");
    const Value x = g.input("x", DType::f32, {"seq", 4});
    g.output("y", u.build(g, x, g.parameter(table)));
    ASSERT_OK(g.finish());
    ASSERT_OK(m.materialize(1));
    ASSERT_OK(m.to(cpu));
    const Status refused =
        Session::create(m, cpu, "g", std::vector<BoundDim>{{"seq", kCapacity}}).status();
    EXPECT_EQ(refused.code(), Code::unsupported) << u.what;
    EXPECT_EQ(refused.message().substr(0, refused.message().find('\n')), u.sentence) << u.what;
    EXPECT_NE(refused.message().find("- While checking the dynamic axes of node "),
              std::string::npos);
  }
}

TEST(CountedRules, AreThereForEveryOperatorOfAFile) {
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    const OpDef& def = op_def(op);
    EXPECT_TRUE(is_internal(op) || def.role == OpRole::repeat || def.counted != nullptr)
        << def.name;
  }
}

TEST(CountedRules, ADimIsNoStepWord) {
  const Device cpu = open_test_device("cpu");
  Model m;
  ASSERT_OK(m.set_dim_limits("position", {.dynamic = true}));
  const Parameter state = must(m.parameter("state", {4, 2}, Init::zeros(), StorageRole::kv_cache));
  GraphBuilder g(m, "g");
  const Value rows = g.input("rows", DType::f32, {"position", 2});
  g.output("y", g.op("WriteRows", {g.parameter(state), rows}, {{"axis", 0}}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(cpu));
  const Status refused =
      Session::create(m, cpu, "g", std::vector<BoundDim>{{"position", 4}}).status();
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "Dim \"position\" is dynamic, but WriteRows has a per-step scalar of this name.\n"
            "- While planning node 0 (WriteRows).");
}

TEST(CountedRules, ADimIsDeclaredOnce) {
  Model m;
  ASSERT_OK(m.set_dim_limits("seq", {.max = 9, .dynamic = true}));
  ASSERT_OK(m.set_dim_limits("seq", {.max = 9, .dynamic = true}));
  const auto refusal = [&](const char* name, const DimLimits& limits) {
    const Status refused = m.set_dim_limits(name, limits);
    EXPECT_EQ(refused.code(), Code::bad_argument);
    return refused.message();
  };
  EXPECT_EQ(refusal("seq", {.max = 9}),
            "The model already has a dim \"seq\" with other limits: 1..9, dynamic.");
  EXPECT_EQ(refusal("d", {.min = 5, .max = 4}), "Dim \"d\" has the invalid limits 5 to 4.");
  EXPECT_EQ(refusal("d", {.min = 0}), "Dim \"d\" has the invalid limits 0 to 2147483647.");
}

// A training binds dynamic dimensions: batches have the size of the capacity.
TEST(CountedTraining, BindsCountedDims) {
  Model m = with_seq(true);
  const Parameter w = must(m.parameter("w", {4, 4}, Init::ones()));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {"seq", 4});
  g.output("loss", g.op("ReduceMean", {g.op("Linear", {x, g.parameter(w)})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(m.to(cpu));
  TrainOptions options;
  options.dims = {{"seq", 6}};
  Trainer t = must(Trainer::create(m, cpu, options));
  Floats data(24, 1);
  const Tensor all = tensor("x", {6, 4}, data), some = tensor("x", {5, 4}, data);
  EXPECT_OK(t.micro_step({&all, 1}).status());
  EXPECT_EQ(t.micro_step({&some, 1}).status().message(), "Input \"x\" is f32[5,4], not f32[6,4].");
}

}  // namespace
}  // namespace bowline::test
