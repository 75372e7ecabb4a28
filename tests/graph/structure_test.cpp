// Graphs after binding to dims and storages, pruning, differentiation, writing and reading.
#include "api/internals.h"
#include "graph/bind.h"
#include "graph/gradient.h"
#include "graph/load.h"
#include "graph/save.h"
#include "model/tied_model.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using graph::BoundGraph;
using graph::GenericGraph;
using graph::ValueKind;
using test::must;

template <class Graph>
std::string ops_of(const Graph& g) {
  std::string out;
  for (const auto& node : g.nodes) {
    out += format("{} ", node.op);
    if (node.repeat) {
      out += "( " + ops_of(*node.repeat->body) + ") ";
    }
  }
  return out;
}

BoundGraph bound(const Model& model, const std::vector<BoundDim>& dims) {
  return must(
      graph::bind(Internals::state(model)->entry_points.graphs[0], *Internals::state(model), dims));
}

TEST(Bind, GivesInputsTheirDims) {
  const Model model = test::make_tied_model();
  const BoundGraph g = bound(model, {{"batch", 4}, {"seq", 6}});
  EXPECT_EQ(format("{}", g[g.inputs[0]].shape), "[4,6]");
  EXPECT_EQ(format("{}", g[g.outputs[0]].shape), "[4,6,11]");
  EXPECT_EQ(ops_of(g), "Embedding Repeat ( Linear Gelu Add ) RmsNorm Linear ");
}

TEST(Bind, RefusesDims) {
  const Model model = test::make_tied_model();
  const GenericGraph& g = Internals::state(model)->entry_points.graphs[0];
  const auto refusal = [&](const std::vector<BoundDim>& dims) {
    return graph::bind(g, *Internals::state(model), dims).status().message();
  };
  EXPECT_EQ(refusal({{"batch", 4}}), "Dim \"seq\" is not bound.");
  EXPECT_EQ(refusal({{"batch", 4}, {"foo", 1}}), "The model has no dim \"foo\".");
  EXPECT_EQ(refusal({{"batch", 0}, {"seq", 1}}), "Dim batch = 0 lies outside 1..2147483647.");
  EXPECT_EQ(refusal({{"batch", 1}, {"seq", int64_t{1} << 31}}),
            "Dim seq = 2147483648 lies outside 1..2147483647.");
}

TEST(Bind, NamesStoragesOfTiesAndIterations) {
  const Model model = test::make_tied_model();
  const BoundGraph g = bound(model, {{"batch", 1}, {"seq", 1}});
  std::vector<uint32_t> of_graph;
  for (const graph::BoundValue& v : g.values) {
    if (v.kind == ValueKind::parameter) {
      of_graph.push_back(v.uses.at(0).tie);
    }
  }
  EXPECT_EQ(of_graph, (std::vector<uint32_t>{0, 1, 0})) << "emb, norm, head";
  for (const graph::BoundValue& v : g.nodes[1].repeat->body->values) {
    if (v.kind == ValueKind::parameter) {
      ASSERT_EQ(v.uses.size(), 2u);
      EXPECT_EQ(v.uses[0].tie + 1, v.uses[1].tie) << "one storage per iteration";
    }
  }
}

TEST(Bind, ReadsATransposedParameterAsItLies) {
  const test::Seed s = test::ae23();
  EXPECT_EQ(ops_of(bound(s.model, {})), "Linear MatMul ReduceSum ");
}

// A model with the [3, 3] storage "w", its transpose "t" and the bias "b". `build` makes a graph of
// them and of x [2, 3].
template <class Build>
BoundGraph with_transpose(Build build) {
  Model model;
  const Parameter w = must(model.parameter("w", {3, 3}, Init::zeros()));
  View transposed;
  transposed.transpose = true;
  const Parameter t = must(model.tied_parameter("t", w, transposed));
  const Parameter b = must(model.parameter("b", {3}, Init::zeros()));
  GraphBuilder g(model, "g");
  const Value x = g.input("x", DType::f32, {2, 3});
  g.output("y", build(g, x, g.parameter(t), g.parameter(b)));
  EXPECT_OK(g.finish());
  return bound(model, {});
}

TEST(Bind, ATransposeIsANodeOnlyWhereAnOperatorNeedsItsBytes) {
  const BoundGraph biased = with_transpose([](GraphBuilder& g, Value x, Value t, Value b) {
    return g.op("Linear", {x, t, b});
  });
  EXPECT_EQ(ops_of(biased), "MatMul Add ");
  EXPECT_EQ(biased[biased.outputs[0]].node, 1u);
  const BoundGraph both = with_transpose([](GraphBuilder& g, Value, Value t, Value b) {
    return g.op("Linear", {t, t, b});
  });
  EXPECT_EQ(ops_of(both), "MatMul Add ");
  const BoundGraph as_bytes = with_transpose([](GraphBuilder& g, Value x, Value t, Value) {
    return g.op("Add", {g.op("MatMul", {x, t}), g.op("Slice", {t}, {{"axis", 0}, {"length", 2}})});
  });
  EXPECT_EQ(ops_of(as_bytes), "Transpose MatMul Slice Add ");
  const BoundGraph row = with_transpose([](GraphBuilder& g, Value x, Value t, Value b) {
    const Value first = g.op("ReduceSum", {x}, {{"axes", std::vector<GraphDim>{0}}});
    return g.op("Linear", {first, t, b});
  });
  EXPECT_EQ(ops_of(row), "Transpose ReduceSum Linear ") << "a MatMul takes no vector";
  const BoundGraph output = with_transpose([](GraphBuilder&, Value, Value t, Value) { return t; });
  EXPECT_EQ(ops_of(output), "Transpose ");
}

// A Repeat of a Linear over a list of two weights.
void add_two_layers(Model& model, const ParameterList& w) {
  GraphBuilder g(model, "g");
  const Value x = g.input("x", DType::f32, {2, 3});
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    return std::vector<Value>{body.op("Linear", {in[0], body.parameter(w)})};
  });
  g.output("y", y.at(0));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
}

// One plan serves all iterations, so all entries have the same view.
TEST(Bind, AListOfARepeatIsTransposedAsAWhole) {
  Model model;
  const ParameterList w = must(model.parameters("w.{}", 2, {3, 3}, Init::zeros()));
  add_two_layers(model, w);
  View transposed;
  transposed.transpose = true;
  const auto before = model.ties();
  const Status refused = model.tie("w.0", "w.1", transposed).status();
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "Parameter \"w.1\" views its storage transposed, but \"w.0\", in the same list of a "
            "Repeat, views it row-major.\n- While tying \"w.1\" to \"w.0\".");
  EXPECT_EQ(model.ties(), before);
  ASSERT_OK(model.tie("w.0", "w.1"));
  ASSERT_OK(model.untie("w.1").status());
  EXPECT_EQ(ops_of(bound(model, {})), "Repeat ( Linear ) ");
}

TEST(Bind, AListOfTransposesOutlivesAnUntie) {
  Model model;
  const Parameter o = must(model.parameter("o", {3, 3}, Init::zeros()));
  View transposed;
  transposed.transpose = true;
  ParameterList w;
  for (const char* name : {"w.0", "w.1"}) {
    w.items.push_back(must(model.tied_parameter(name, o, transposed)));
  }
  add_two_layers(model, w);
  ASSERT_OK(model.untie("w.1").status());
  EXPECT_EQ(ops_of(bound(model, {})), "Repeat ( MatMul ) ");
}

TEST(Prune, DropsWhatReachesNoOutput) {
  Model model;
  GraphBuilder g(model, "f");
  const Value x = g.input("x", DType::f32, {2});
  const Value y = g.op("Tanh", {x});
  g.op("Gelu", {g.op("Relu", {y})});
  g.output("y", g.op("Silu", {y}));
  ASSERT_OK(g.finish());
  BoundGraph out = bound(model, {});
  EXPECT_EQ(ops_of(out), "Tanh Relu Gelu Silu ");
  graph::prune(out);
  EXPECT_EQ(ops_of(out), "Tanh Silu ");
  EXPECT_EQ(out[out.outputs[0]].node, 1u);
}

TEST(DeepCopy, SharesNoBody) {
  const Model model = test::make_tied_model();
  const GenericGraph& g = Internals::state(model)->entry_points.graphs[0];
  GenericGraph copy = graph::deep_copy(g);
  copy.nodes[1].repeat->body->nodes.clear();
  EXPECT_EQ(g.nodes[1].repeat->body->nodes.size(), 3u);
}

// The backward pass follows the forward pass. Each use of a tie adds to the same gradient row.
TEST(Gradient, ContributesOncePerUse) {
  const test::Seed s = test::lm32();
  BoundGraph g = bound(s.model, {});
  g.outputs.resize(1);
  g.output_names.resize(1);
  const std::vector<graph::GradientRow> rows = {1, std::nullopt};
  const std::vector<uint64_t> elements = {6, 6};
  const graph::ValueId loss = g.outputs[0];
  const size_t forward = g.nodes.size();
  const graph::TrainingGraph t = must(graph::differentiate(std::move(g), loss, {rows, elements}));
  EXPECT_EQ(t.backward_begin, forward);
  size_t contributions = 0;
  for (const graph::BoundNode& node : t.graph.nodes) {
    contributions += node.op == Op::AccumulateGrad ? 1 : 0;
  }
  EXPECT_EQ(contributions, 2u) << ops_of(t.graph);
}

TEST(Gradient, NeedsAScalarLoss) {
  const test::Seed s = test::lm32();
  BoundGraph g = bound(s.model, {});
  const std::vector<graph::GradientRow> rows = {1, std::nullopt};
  const std::vector<uint64_t> elements = {6, 6};
  const graph::ValueId logits = g.outputs[1];
  EXPECT_EQ(graph::differentiate(std::move(g), logits, {rows, elements}).status().code(),
            Code::bad_argument);
}

TEST(SaveAndLoad, KeepTheGraph) {
  const test::Folder folder;
  const Model model = test::make_tied_model();
  ASSERT_OK(model.save(folder / "m"));
  const Model opened = must(Model::open(folder / "m"));
  const GenericGraph& a = Internals::state(model)->entry_points.graphs[0];
  const GenericGraph& b = Internals::state(opened)->entry_points.graphs[0];
  EXPECT_EQ(ops_of(a), ops_of(b));
  EXPECT_EQ(a.output_names, b.output_names);
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a[a.outputs[i]].shape, b[b.outputs[i]].shape);
  }
  EXPECT_EQ(attributes_text(Op::RmsNorm, a.nodes[2].attributes),
            attributes_text(Op::RmsNorm, b.nodes[2].attributes));
}

}  // namespace
}  // namespace bowline
