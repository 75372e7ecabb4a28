// Gathered rows of a short table that are multiplied: when the table is multiplied instead, and
// when not.
#include "api/internals.h"
#include "graph/bind.h"
#include "graph/counted.h"
#include "graph/fuse.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using graph::BoundGraph;
using test::must;

constexpr int64_t kRows = 5, kWidth = 3, kUnits = 4;

// A graph under construction with ids [seq, 2] and the rows x that they select from the table "t"
// [5, 3].
struct Short {
  explicit Short(bool counted = false) {
    EXPECT_OK(model.set_dim_limits("seq", {.dynamic = counted}));
    t = g.parameter(must(model.parameter("t", {kRows, kWidth}, Init::normal(1))));
    ids = g.input("ids", DType::i32, {"seq", 2});
    x = g.named("letters").op("Embedding", {t, ids});
  }
  Value weight(const std::string& name, const std::vector<int64_t>& shape) {
    return g.parameter(must(model.parameter(name, shape, Init::normal(1))));
  }
  Value w() { return weight("w", {kUnits, kWidth}); }

  Model model;
  GraphBuilder g{model, "g"};
  Value t, ids, x;
};

// The operators with their output shapes, in a graph with 2 `seq` ids.
std::string nodes_of(const BoundGraph& g) {
  std::string out;
  for (const graph::BoundNode& n : g.nodes) {
    out += format("{}{} ", n.op, g[n.outputs[0]].shape);
  }
  return out;
}

BoundGraph bound(const Short& s, int64_t seq, std::optional<DType> compute = {}) {
  const graph::ModelState& state = *Internals::state(s.model);
  const BoundDim dims[] = {{"seq", seq}};
  return must(graph::bind(state.entry_points.graphs[0], state, dims, compute));
}

// Uses enough ids for the rewrite, or `seq` pairs of ids.
template <class Build>
std::string rewritten(const Build& build, int64_t seq = kRows) {
  Short s;
  s.g.output("y", build(s));
  EXPECT_OK(s.g.finish());
  BoundGraph graph = bound(s, seq);
  const std::string before = nodes_of(graph);
  const bool any = graph::multiply_tables(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const graph::ValueId v : graph.nodes[n].outputs) {
      EXPECT_EQ(graph[v].node, n);
    }
  }
  const std::string after = nodes_of(graph);
  EXPECT_EQ(any, before != after) << before;
  return any ? after : "nothing";
}

Value linear(Short& s) { return s.g.op("Linear", {s.x, s.w()}); }

TEST(Tables, AreMultipliedBeforeRowsAreGathered) {
  EXPECT_EQ(rewritten(linear), "Linear[5,4] Embedding[5,2,4] ");
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("Linear", {s.x, s.w(), s.weight("b", {kUnits})});
            }),
            "Linear[5,4] Embedding[5,2,4] ");
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("MatMul", {s.x, s.weight("m", {kWidth, kUnits})});
            }),
            "MatMul[5,4] Embedding[5,2,4] ");
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("MatMul", {s.x, s.w()}, {{"transpose_b", 1}});
            }),
            "MatMul[5,4] Embedding[5,2,4] ");
}

TEST(Tables, OfTwoProductsInARowAreMultipliedTwice) {
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("Linear", {linear(s), s.weight("v", {2, kUnits})});
            }),
            "Linear[5,4] Linear[5,2] Embedding[5,2,2] ");
}

TEST(Tables, AreMultipliedForEveryReader) {
  EXPECT_EQ(rewritten([](Short& s) {
              const Value other = s.g.op("Linear", {s.x, s.weight("v", {kUnits, kWidth})});
              return s.g.op("Add", {linear(s), other});
            }),
            "Linear[5,4] Embedding[5,2,4] Linear[5,4] Embedding[5,2,4] Add[5,2,4] ");
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("Add", {s.x, s.g.op("Linear", {s.x, s.weight("v", {kWidth, kWidth})})});
            }),
            "Embedding[5,2,3] Linear[5,3] Embedding[5,2,3] Add[5,2,3] ")
      << "the rows are read as they are too";
}

TEST(Tables, ThatAreComputedAreMultipliedToo) {
  EXPECT_EQ(rewritten([](Short& s) {
              const Value x = s.g.op("Embedding", {s.g.op("Tanh", {s.t}), s.ids});
              return s.g.op("Linear", {x, s.w()});
            }),
            "Tanh[5,3] Linear[5,4] Embedding[5,2,4] ");
}

TEST(Tables, KeepTheNameOfTheNodeThatGathers) {
  Short s;
  s.g.output("y", s.g.named("first").op("Linear", {s.x, s.w()}));
  ASSERT_OK(s.g.finish());
  BoundGraph graph = bound(s, kRows);
  ASSERT_TRUE(graph::multiply_tables(graph));
  EXPECT_EQ(graph::describe(graph, 0), "node 0 \"first\" (Linear)");
  EXPECT_EQ(graph::describe(graph, 1), "node 1 \"letters\" (Embedding)");
}

TEST(Tables, OfMoreThanHalfAsManyRowsAsIdsStay) {
  EXPECT_EQ(rewritten(linear, kRows - 1), "nothing");
}

TEST(Tables, StayWhereTheirRowsAreNotWhatIsMultiplied) {
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("Linear", {s.g.op("Dropout", {s.x}, {{"rate", 0.5}}), s.w()});
            }),
            "nothing");
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("MatMul", {s.x, s.weight("m", {2, kUnits})}, {{"transpose_a", 1}});
            }),
            "nothing");
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("MatMul", {s.x, s.weight("m", {1, kWidth, kUnits})});
            }),
            "nothing")
      << "matrices that could be many";
  EXPECT_EQ(rewritten([](Short& s) {
              return s.g.op("MatMul", {s.weight("m", {kUnits, 2}), s.x});
            }),
            "nothing");
}

// A 16-bit product would round sums that are otherwise not rounded.
TEST(Tables, StayInSixteenBits) {
  Short s;
  s.g.output("y", linear(s));
  ASSERT_OK(s.g.finish());
  BoundGraph graph = bound(s, kRows, DType::bf16);
  EXPECT_FALSE(graph::multiply_tables(graph));
  EXPECT_NE(nodes_of(graph).find("Linear[5,2,4]"), std::string::npos) << nodes_of(graph);
}

TEST(Tables, OfCodesStayAndSoDoThoseOfWeightsThatAreCodes) {
  for (const char* name : {"t", "w", "nothing"}) {
    Short s;
    s.g.output("y", linear(s));
    ASSERT_OK(s.g.finish());
    ASSERT_OK(s.model.materialize(1));
    if (std::string_view(name) != "nothing") {
      ASSERT_OK(quantize(s.model, "int8 block row", name).status());
    }
    BoundGraph graph = bound(s, kRows);
    EXPECT_EQ(graph::multiply_tables(graph), std::string_view(name) == "nothing") << name;
  }
}

// The product would use the written values.
TEST(Tables, ThatAreWrittenMeanwhileStay) {
  for (const bool meanwhile : {true, false}) {
    Short s;
    const Value state = s.g.parameter(
        must(s.model.parameter("s", {kRows, kWidth}, Init::zeros(), StorageRole::kv_cache)));
    const Value rows = s.weight("rows", {1, kWidth});
    const auto write = [&] {
      s.g.output("written", s.g.op("WriteRows", {state, rows}, {{"axis", 0}}));
    };
    const Value x = s.g.op("Embedding", {state, s.ids});
    if (meanwhile) {
      write();
    }
    s.g.output("y", s.g.op("Linear", {x, s.w()}));
    if (!meanwhile) {
      write();
    }
    ASSERT_OK(s.g.finish());
    BoundGraph graph = bound(s, kRows);
    EXPECT_EQ(graph::multiply_tables(graph), !meanwhile) << nodes_of(graph);
  }
}

// A run may have fewer ids than rows.
TEST(Tables, OfCountedIdsStay) {
  for (const bool counted : {true, false}) {
    Short s(counted);
    s.g.output("y", linear(s));
    ASSERT_OK(s.g.finish());
    BoundGraph graph = bound(s, kRows);
    const BoundDim dims[] = {{"seq", kRows}};
    ASSERT_OK(graph::count(graph, Internals::state(s.model)->entry_points.dims, dims));
    EXPECT_EQ(graph::multiply_tables(graph), !counted);
  }
}

}  // namespace
}  // namespace bowline
