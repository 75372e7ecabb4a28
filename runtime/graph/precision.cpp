#include "graph/precision.h"

#include <map>

#include "graph/infer.h"
#include "ops/build.h"

namespace bowline::detail::graph {
namespace {

constexpr bool is_short(DType t) { return t == DType::f16 || t == DType::bf16; }

template <class Graph>
Result<ValueId> append_cast(Graph& graph, ValueId v, DType dtype, Dims dims) {
  const std::string name = graph[v].name.empty() ? "" : format("{}.{}", graph[v].name, dtype);
  const ValueId out = graph.add_results(1)[0];
  graph.nodes.push_back(Graph::make_node(Op::Cast, cast_attributes(dtype), {v}, {out}, name));
  BOWLINE_TRY(infer_node(graph, graph.nodes.size() - 1, dims));
  return out;
}

class Rewriter {
 public:
  Rewriter(GenericGraph& graph, DType compute, Dims dims, bool has_f32)
      : graph_(graph), compute_(compute), dims_(dims), has_f32_(has_f32) {}

  // Rewrites the graph. The outputs get the dtypes `outputs`.
  Status rewrite(const std::vector<DType>& outputs) {
    std::vector<GenericNode> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (GenericNode& node : old) {
      BOWLINE_TRY(add(std::move(node)));
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      BOWLINE_TRY_ASSIGN(graph_.outputs[i], in(graph_.outputs[i], outputs[i]));
    }
    renumber(graph_);
    return {};
  }

 private:
  bool is_number(ValueId v) const { return is_float(graph_[v].dtype); }

  // True if input i may have any float dtype.
  static bool has_choice(const OpDef& def, size_t i) {
    const std::span<const DType> types = types_of_input(def.types, i);
    return std::ranges::find(types, DType::f16) != types.end();
  }
  // True if input i may have any dtype, because its elements are only moved.
  static bool is_moved(const OpDef& def, size_t i) {
    return types_of_input(def.types, i).size() == kDTypes;
  }

  // The dtype for the operands of the node that may have any float dtype.
  DType wanted(const GenericNode& node) const {
    const OpDef& def = op_def(node.op);
    for (const InPlace& pair : def.updates) {
      if (pair.input >= 0 && has_choice(def, static_cast<size_t>(pair.input))) {
        const GenericValue& state = graph_[node.inputs[static_cast<size_t>(pair.input)]];
        // Quantized values can be read as any float dtype.
        return state.encoding.is_plain() ? state.dtype : compute_;
      }
    }
    bool moves = true;
    bool mixed = false;
    std::optional<DType> common;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (is_number(node.inputs[i]) && has_choice(def, i)) {
        const DType dtype = graph_[node.inputs[i]].dtype;
        moves = moves && is_moved(def, i);
        mixed = mixed || (common && *common != dtype);
        common = dtype;
      }
    }
    const auto is_single = [&](ValueId v) { return graph_[v].shape.elements() == 1; };
    const auto is_sum = [&](ValueId v) {
      return graph_[v].kind == ValueKind::result && graph_[v].dtype == DType::f32;
    };
    if (has_f32_ && std::ranges::all_of(node.inputs, is_single) && is_single(node.outputs[0]) &&
        std::ranges::any_of(node.inputs, is_sum)) {
      return DType::f32;
    }
    // A comparison does not round its operands.
    const bool compares = !is_float(graph_[node.outputs[0]].dtype);
    if (common && !mixed && (moves || compares)) {
      return *common;
    }
    return def.stays_f32 || compares ? DType::f32 : compute_;
  }

  Status add(GenericNode node) {
    if (node.repeat) {
      return add_repeat(std::move(node));
    }
    const OpDef& def = op_def(node.op);
    if (def.derived_copy != DerivedCopy::by_element) {
      const DType dtype = wanted(node);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId v = node.inputs[i];
        if (is_number(v)) {
          BOWLINE_TRY_ASSIGN(node.inputs[i], in(v, has_choice(def, i) ? dtype : DType::f32));
        }
      }
    }
    graph_.nodes.push_back(std::move(node));
    return infer_node(graph_, graph_.nodes.size() - 1, dims_);
  }

  // Carried values have the compute dtype, inside and outside.
  Status add_repeat(GenericNode node) {
    const GenericRepeat& repeat = *node.repeat;
    GenericGraph& body = *repeat.body;
    std::vector<DType> outputs;
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      const DType dtype = body[body.outputs[i]].dtype;
      outputs.push_back(i < repeat.carried && is_float(dtype) ? compute_ : dtype);
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i < repeat.carried && is_number(node.inputs[i])) {
        BOWLINE_TRY_ASSIGN(node.inputs[i], in(node.inputs[i], compute_));
      }
      body[body.inputs[i]].dtype = graph_[node.inputs[i]].dtype;
    }
    BOWLINE_TRY(Rewriter(body, compute_, dims_, has_f32_).rewrite(outputs));
    graph_.nodes.push_back(std::move(node));
    return infer_node(graph_, graph_.nodes.size() - 1, dims_);
  }

  // `v` in another dtype.
  Result<ValueId> in(ValueId v, DType dtype) {
    if (graph_[v].dtype == dtype) {
      return v;
    }
    const auto [it, is_new] = made_.try_emplace({v, dtype}, kNoValue);
    if (is_new) {
      BOWLINE_TRY_ASSIGN(it->second, append_cast(graph_, v, dtype, dims_));
    }
    return it->second;
  }

  GenericGraph& graph_;
  DType compute_;
  Dims dims_;
  bool has_f32_;
  std::map<std::pair<ValueId, DType>, ValueId> made_;
};

}  // namespace

Status compute_in(GenericGraph& graph, DType compute, Dims dims, bool has_f32) {
  BOWLINE_REQUIRE(is_short(compute), "A plan can compute in f32, f16 or bf16, not in {}.", compute);
  std::vector<DType> outputs;
  for (const ValueId v : graph.outputs) {
    outputs.push_back(graph[v].dtype);
  }
  return Rewriter(graph, compute, dims, has_f32).rewrite(outputs);
}

Result<ValueId> in_f32(BoundGraph& graph, ValueId value) {
  return is_short(graph[value].dtype) ? append_cast(graph, value, DType::f32, {}) : value;
}

}  // namespace bowline::detail::graph
