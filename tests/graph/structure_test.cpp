// What becomes of a graph: bound to dims and storages, pruned, differentiated, written and read.
#include "graph/bind.h"
#include "graph/gradient.h"
#include "graph/load.h"
#include "graph/save.h"
#include "model/tied_model.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using graph::Graph;
using graph::ValueKind;
using test::must;

std::string ops_of(const Graph& g) {
  std::string out;
  for (const graph::Node& node : g.nodes) {
    out += format("{} ", node.op);
    if (node.repeat) {
      out += "( " + ops_of(*node.repeat->body) + ") ";
    }
  }
  return out;
}

Graph bound(const Model& model, const std::vector<BoundDim>& dims) {
  return must(graph::bind(model.state()->graphs[0], *model.state(), dims));
}

TEST(Bind, GivesInputsTheirDims) {
  const Model model = test::make_tied_model();
  const Graph g = bound(model, {{"batch", 4}, {"seq", 6}});
  EXPECT_EQ(format("{}", g[g.inputs[0]].shape), "[4,6]");
  EXPECT_EQ(format("{}", g[g.outputs[0]].shape), "[4,6,11]");
  EXPECT_EQ(ops_of(g), "Embedding Repeat ( Linear Gelu Add ) RmsNorm Linear ");
}

TEST(Bind, RefusesDims) {
  const Model model = test::make_tied_model();
  const Graph& g = model.state()->graphs[0];
  const auto refusal = [&](const std::vector<BoundDim>& dims) {
    return graph::bind(g, *model.state(), dims).status().message();
  };
  EXPECT_EQ(refusal({{"batch", 4}}), "Dim \"seq\" is not bound.");
  EXPECT_EQ(refusal({{"batch", 4}, {"foo", 1}}), "The model has no dim \"foo\".");
  EXPECT_EQ(refusal({{"batch", 0}, {"seq", 1}}), "Dim batch = 0 lies outside 1..2147483647.");
  EXPECT_EQ(refusal({{"batch", 1}, {"seq", int64_t{1} << 31}}),
            "Dim seq = 2147483648 lies outside 1..2147483647.");
}

TEST(Bind, NamesStoragesOfTiesAndIterations) {
  const Model model = test::make_tied_model();
  const Graph g = bound(model, {{"batch", 1}, {"seq", 1}});
  std::vector<uint32_t> of_graph;
  for (const graph::ValueInfo& v : g.values) {
    if (v.kind == ValueKind::parameter) {
      of_graph.push_back(v.uses.at(0).tie);
    }
  }
  EXPECT_EQ(of_graph, (std::vector<uint32_t>{0, 1, 0})) << "emb, norm, head";
  for (const graph::ValueInfo& v : g.nodes[1].repeat->body->values) {
    if (v.kind == ValueKind::parameter) {
      ASSERT_EQ(v.uses.size(), 2u);
      EXPECT_EQ(v.uses[0].tie + 1, v.uses[1].tie) << "one storage per iteration";
    }
  }
}

TEST(Bind, MakesDeclaredTransposesNodes) {
  const test::Seed s = test::ae23();
  EXPECT_EQ(ops_of(bound(s.model, {})), "Transpose Linear Linear ReduceSum ");
}

TEST(Prune, DropsWhatReachesNoOutput) {
  Model model;
  GraphBuilder g(model, "f");
  const Value x = g.input("x", DType::f32, {2});
  const Value y = g.op("Tanh", {x});
  g.op("Gelu", {g.op("Relu", {y})});
  g.output("y", g.op("Silu", {y}));
  ASSERT_OK(g.finish());
  Graph out = bound(model, {});
  EXPECT_EQ(ops_of(out), "Tanh Relu Gelu Silu ");
  graph::prune(out);
  EXPECT_EQ(ops_of(out), "Tanh Silu ");
  EXPECT_EQ(out[out.outputs[0]].node, 1u);
}

TEST(DeepCopy, SharesNoBody) {
  const Model model = test::make_tied_model();
  const Graph& g = model.state()->graphs[0];
  Graph copy = graph::deep_copy(g);
  copy.nodes[1].repeat->body->nodes.clear();
  EXPECT_EQ(g.nodes[1].repeat->body->nodes.size(), 3u);
}

// The backward part follows the forward one; each use of a tie contributes to the one gradient row.
TEST(Gradient, ContributesOncePerUse) {
  const test::Seed s = test::lm32();
  Graph g = bound(s.model, {});
  g.outputs.resize(1);
  g.output_names.resize(1);
  const std::vector<graph::GradientRow> rows = {1, std::nullopt};
  const std::vector<uint64_t> elements = {6, 6};
  const graph::ValueId loss = g.outputs[0];
  const size_t forward = g.nodes.size();
  const graph::TrainingGraph t = must(graph::differentiate(std::move(g), loss, {rows, elements}));
  EXPECT_EQ(t.backward_begin, forward);
  size_t contributions = 0;
  for (const graph::Node& node : t.graph.nodes) {
    contributions += node.op == Op::AccumulateGrad ? 1 : 0;
  }
  EXPECT_EQ(contributions, 2u) << ops_of(t.graph);
}

TEST(Gradient, NeedsAScalarLoss) {
  const test::Seed s = test::lm32();
  Graph g = bound(s.model, {});
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
  const Graph& a = model.state()->graphs[0];
  const Graph& b = opened.state()->graphs[0];
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
