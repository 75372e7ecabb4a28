#include "graph/infer.h"

namespace bowline::detail::graph {
namespace {

template <class Graph>
class NodeInfer : public InferContext {
 public:
  NodeInfer(Graph& graph, const typename Graph::Node& node, const Attributes& bound,
            std::span<const DType> dtypes)
      : InferContext(bound), graph_(graph), node_(node), dtypes_(dtypes) {}

  int inputs() const override { return static_cast<int>(node_.inputs.size()); }
  const Shape& in(int i) const override { return value(i).shape; }
  DType dtype(int i) const override { return dtypes_[static_cast<size_t>(i)]; }
  Status out(int i, const Shape& shape, std::optional<DType> type) override {
    // The checked form holds the limits of rank, dims and elements.
    BOWLINE_TRY_ASSIGN(const Shape checked, Shape::checked(shape.dims()));
    ValueBase& v = graph_[node_.outputs[static_cast<size_t>(i)]];
    v.shape = checked;
    v.dtype = type ? *type : output_type(op_def(node_.op).types, i, dtypes_).value();
    return {};
  }

 private:
  const ValueBase& value(int i) const { return graph_[node_.inputs[static_cast<size_t>(i)]]; }
  Graph& graph_;
  const typename Graph::Node& node_;
  std::span<const DType> dtypes_;
};

Shape slice_of(const Shape& stacked) { return Shape(stacked.dims().subspan(1)); }

template <class Graph>
Status infer_repeat(Graph& graph, const typename Graph::Node& node, Dims bound) {
  const Repeat<Graph>& repeat = *node.repeat;
  Graph& body = *repeat.body;
  BOWLINE_REQUIRE(repeat.count >= 1, "The Repeat has a count of 0.");
  BOWLINE_REQUIRE(body.inputs.size() == node.inputs.size(),
                  "The body has {} inputs, but the Repeat has {}.", body.inputs.size(),
                  node.inputs.size());
  BOWLINE_REQUIRE(body.outputs.size() == node.outputs.size() &&
                      repeat.carried <= body.outputs.size() && repeat.carried <= body.inputs.size(),
                  "The body has {} outputs, but the Repeat has {}, of which {} are carried.",
                  body.outputs.size(), node.outputs.size(), repeat.carried);
  const size_t first_stacked = node.inputs.size() - repeat.stacked_inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueBase& outer = graph[node.inputs[i]];
    ValueBase& inner = body[body.inputs[i]];
    inner.dtype = outer.dtype;
    inner.shape = i < first_stacked ? outer.shape : slice_of(outer.shape);
  }
  BOWLINE_TRY(infer(body, bound));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueBase& inner = body[body.outputs[i]];
    ValueBase& outer = graph[node.outputs[i]];
    outer.dtype = inner.dtype;
    if (i < repeat.carried) {
      const ValueBase& first = body[body.inputs[i]];
      BOWLINE_REQUIRE(first.shape == inner.shape && first.dtype == inner.dtype,
                      "Carried value {} enters as {}{} and leaves as {}{}.", i, first.dtype,
                      first.shape, inner.dtype, inner.shape);
      outer.shape = inner.shape;
    } else {
      BOWLINE_REQUIRE(inner.shape.rank() < kMaxRank,
                      "Stacked value {} has rank {}, which leaves no room for another axis.", i,
                      inner.shape.rank());
      Shape stacked{static_cast<int64_t>(repeat.count)};
      for (const int64_t d : inner.shape.dims()) {
        stacked.push_back(d);
      }
      outer.shape = stacked;
    }
  }
  return {};
}

template <class Graph>
Status infer_op(Graph& graph, const typename Graph::Node& node, Dims bound) {
  const OpDef& def = op_def(node.op);
  if (def.role == OpRole::repeat) {
    return infer_repeat(graph, node, bound);
  }
  BOWLINE_TRY(check_inputs(def, node.inputs.size()));
  std::vector<DType> dtypes;
  for (const ValueId v : node.inputs) {
    dtypes.push_back(graph[v].dtype);
  }
  BOWLINE_TRY(check_operand_types(def.types, def.name, dtypes));
  BOWLINE_TRY_ASSIGN(const Attributes attributes,
                     attributes_bound(node.op, node.attributes, bound));
  NodeInfer context(graph, node, attributes, dtypes);
  return def.infer(context);
}

}  // namespace

Result<Shape> bind_shape(const std::vector<GraphDim>& dims, Dims bound) {
  std::vector<int64_t> out;
  for (const GraphDim& d : dims) {
    int64_t value = d.value;
    if (!d.name.empty()) {
      const auto it = std::ranges::find(bound, d.name, &BoundDim::name);
      BOWLINE_REQUIRE(it != bound.end(), "Dim \"{}\" is not bound.", d.name);
      value = it->value;
    }
    out.push_back(value);
  }
  return Shape::checked(out);
}

template <class Graph>
Status infer_node(Graph& graph, size_t node, Dims bound) {
  // Node and value lists may move while a body is inferred; a copy of the node is cheap.
  const auto copy = graph.nodes[node];
  return infer_op(graph, copy, bound).at(format("While checking {}.", describe(graph, node)));
}

template <class Graph>
Status infer(Graph& graph, Dims bound) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    BOWLINE_TRY(infer_node(graph, i, bound));
  }
  return {};
}

template Status infer_node(GenericGraph& graph, size_t node, Dims bound);
template Status infer_node(BoundGraph& graph, size_t node, Dims bound);
template Status infer(GenericGraph& graph, Dims bound);
template Status infer(BoundGraph& graph, Dims bound);

}  // namespace bowline::detail::graph
