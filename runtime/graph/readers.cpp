#include "graph/readers.h"

#include "graph/op_table.h"

namespace bowline::detail::graph {
namespace {

class Readers {
 public:
  explicit Readers(const ModelState& model) : model_(model) {}

  void add(const GenericGraph& graph, std::string_view entry) {
    const std::vector<ValueId> shown = shown_by(graph);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const GenericNode& node = graph.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool shows = i == 0 && shown[node.outputs[0]] != node.outputs[0];
        if (!shows && !takes_codes(graph, node, i)) {
          note(graph, shown[node.inputs[i]],
               format("is read by {} of \"{}\", which cannot read quantized values",
                      describe(graph, n), entry));
        }
      }
      if (node.repeat) {
        add(*node.repeat->body, entry);
      }
    }
    for (const ValueId v : graph.outputs) {
      note(graph, shown[v], format("is an output of \"{}\"", entry));
    }
  }

  std::map<uint32_t, std::string> found;

 private:
  // For each value: the state whose rows it still shows after a write, or itself.
  static std::vector<ValueId> shown_by(const GenericGraph& graph) {
    std::vector<ValueId> shown(graph.values.size());
    for (ValueId v = 0; v < shown.size(); ++v) {
      shown[v] = v;
    }
    for (const GenericNode& node : graph.nodes) {
      const OpDef& def = op_def(node.op);
      const ValueId in = node.inputs.empty() ? kNoValue : node.inputs[0];
      if (may_write_codes(def) ||
          (in != kNoValue && shown[in] != in && keeps_rows(graph, node, def))) {
        shown[node.outputs[0]] = shown[in];
      }
    }
    return shown;
  }

  static bool keeps_rows(const GenericGraph& graph, const GenericNode& node, const OpDef& def) {
    const Shape& from = graph[node.inputs[0]].shape;
    const Shape& to = graph[node.outputs[0]].shape;
    const bool is_view =
        def.is_view || (def.is_front != nullptr && def.is_front(node.attributes, from));
    return is_view && from.rank() > 0 && to.rank() > 0 && from.back() == to.back();
  }

  // A transposed view is read by an operator that can read it transposed, or by a copy.
  bool takes_codes(const GenericGraph& graph, const GenericNode& node, size_t i) const {
    const OpDef* def = &op_def(node.op);
    const GenericValue& value = graph[node.inputs[i]];
    if (value.kind == ValueKind::parameter &&
        model_.table.parameters[value.parameters[0]].view.transpose) {
      const TransposedInput lies = transposed_input(graph, node, i);
      if (lies.op == Op::Invalid) {
        return false;
      }
      def = &op_def(lies.op);
    }
    return (def->encoded_inputs >> i & 1) != 0;
  }

  void note(const GenericGraph& graph, ValueId v, const std::string& why) {
    for (const uint32_t p : graph[v].parameters) {
      found.try_emplace(model_.table.parameters[p].tie, why);
    }
  }

  const ModelState& model_;
};

}  // namespace

std::vector<std::vector<uint32_t>> ties_of_lists(const ModelState& model) {
  std::vector<std::vector<uint32_t>> out;
  for (const GenericGraph& graph : model.entry_points.graphs) {
    for (const GenericGraph* const g : with_bodies(graph)) {
      for (const GenericValue& value : g->values) {
        if (value.parameters.size() > 1) {
          std::ranges::transform(value.parameters, std::back_inserter(out.emplace_back()),
                                 [&](uint32_t p) { return model.table.parameters[p].tie; });
        }
      }
    }
  }
  return out;
}

std::map<uint32_t, std::string> plain_readers(const ModelState& model) {
  Readers readers(model);
  for (const GenericGraph& graph : model.entry_points.graphs) {
    readers.add(graph, graph.name);
  }
  return std::move(readers.found);
}

bool reads(const params::Table& table, const GenericGraph& g, std::span<const std::string> ops,
           std::span<const uint32_t> ties) {
  const auto shows_one = [&](uint32_t p) {
    return std::ranges::find(ties, table.parameters[p].tie) != ties.end();
  };
  std::vector<bool> fixed(g.values.size()), ours(g.values.size());
  for (size_t v = 0; v < g.values.size(); ++v) {
    fixed[v] = !g.values[v].parameters.empty();
    ours[v] = std::ranges::any_of(g.values[v].parameters, shows_one);
  }
  for (const GenericNode& node : g.nodes) {
    if (node.repeat) {
      if (reads(table, *node.repeat->body, ops, ties)) {
        return true;
      }
      continue;
    }
    const bool reads_ours = std::ranges::any_of(node.inputs, [&](auto v) { return ours[v]; });
    if (reads_ours && std::ranges::find(ops, op_def(node.op).name) != ops.end()) {
      return true;
    }
    if (reads_ours && std::ranges::all_of(node.inputs, [&](auto v) { return fixed[v]; })) {
      for (const ValueId out : node.outputs) {
        fixed[out] = ours[out] = true;
      }
    }
  }
  return false;
}

}  // namespace bowline::detail::graph
