// Hoisting: values that depend only on parameters stay the same until a parameter is written. A
// separate plan computes them.
#include <numeric>

#include "base/checked.h"
#include "graph/bind.h"
#include "plan/lowering.h"

namespace bowline::detail::plan {

using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundValue;
using graph::ValueId;
using graph::ValueKind;

namespace {

void add_written(const BoundGraph& g, std::set<uint32_t>& ties) {
  for (const BoundNode& node : g.nodes) {
    if (node.repeat) {
      add_written(*node.repeat->body, ties);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (const int from = updated_input(op_def(node.op), o); from >= 0) {
        for (const graph::StorageUse& use : g[node.inputs[static_cast<size_t>(from)]].uses) {
          ties.insert(use.tie);
        }
      }
    }
  }
}

bool changes_seldom(params::Role role) {
  return role != params::Role::kv_cache && !is_training(role);
}

// True if the node is deterministic and cannot fail. Integers may be out-of-range indices or zero
// divisors, which the run that meets them must report.
bool is_steady(const BoundGraph& g, const BoundNode& node) {
  const OpDef& def = op_def(node.op);
  const auto is_right = [&](ValueId v) {
    return g[v].counted.empty() && (is_float(g[v].dtype) || g[v].dtype == DType::boolean);
  };
  return !node.repeat && !def.takes_lists && def.gradient_rows == GradientRows::none &&
         def.updates[0].output < 0 && step_words(node.op).empty() && node.read_counts.empty() &&
         node.counted_sizes.empty() && std::ranges::all_of(node.inputs, is_right) &&
         std::ranges::all_of(node.outputs, is_right);
}

// For each value: true if it depends on parameters alone.
std::vector<bool> steady_values(const BoundGraph& g, const params::Table& table) {
  std::set<uint32_t> written;
  add_written(g, written);
  std::vector<bool> out(g.values.size());
  for (ValueId v = 0; v < g.values.size(); ++v) {
    out[v] = g[v].kind == ValueKind::parameter &&
             std::ranges::all_of(g[v].uses, [&](const graph::StorageUse& use) {
               return !written.contains(use.tie) && changes_seldom(table.storages[use.tie].role);
             });
  }
  for (const BoundNode& node : g.nodes) {
    if (is_steady(g, node) && std::ranges::all_of(node.inputs, [&](ValueId v) { return out[v]; })) {
      for (const ValueId v : node.outputs) {
        out[v] = true;
      }
    }
  }
  return out;
}

// For each value: the value whose bytes it views, or itself.
std::vector<ValueId> viewed_values(const BoundGraph& g) {
  std::vector<ValueId> out(g.values.size());
  std::iota(out.begin(), out.end(), ValueId{0});
  for (const BoundNode& node : g.nodes) {
    if (op_def(node.op).is_view) {
      out[node.outputs[0]] = out[node.inputs[0]];
    }
  }
  return out;
}

}  // namespace

std::vector<ValueId> hoistable(const BoundGraph& g, const params::Table& table) {
  const std::vector<bool> steady = steady_values(g, table);
  const std::vector<ValueId> roots = viewed_values(g);
  std::set<ValueId> found;
  for (const BoundNode& node : g.nodes) {
    if (!node.outputs.empty() && steady[node.outputs[0]]) {
      continue;
    }
    for (const ValueId v : node.inputs) {
      if (steady[v] && g[roots[v]].kind == ValueKind::result) {
        found.insert(roots[v]);
      }
    }
  }
  return {found.begin(), found.end()};
}

BoundGraph hoist(BoundGraph& graph, std::span<const ValueId> values) {
  BoundGraph made = graph::deep_copy(graph);
  std::vector<bool> used(made.values.size());
  for (const ValueId v : values) {
    used[v] = true;
  }
  std::vector<BoundNode> nodes;
  for (auto node = made.nodes.rbegin(); node != made.nodes.rend(); ++node) {
    if (std::ranges::any_of(node->outputs, [&](ValueId v) { return used[v]; })) {
      for (const ValueId v : node->inputs) {
        used[v] = true;
      }
      nodes.push_back(std::move(*node));
    }
  }
  std::ranges::reverse(nodes);
  made.nodes = std::move(nodes);
  made.inputs.clear();
  made.outputs.clear();
  made.output_names.clear();
  made.counted.clear();
  made.held.made = true;
  made.held.values.assign(values.begin(), values.end());
  renumber(made);

  std::map<ValueId, ValueId> instead;
  for (const ValueId v : values) {
    BoundValue info = graph[v];
    info.kind = ValueKind::input;
    info.node = UINT32_MAX;
    graph.held.values.push_back(graph.add_value(std::move(info)));
    instead.emplace(v, graph.held.values.back());
  }
  const auto replace = [&](std::vector<ValueId>& used_by) {
    for (ValueId& v : used_by) {
      const auto found = instead.find(v);
      v = found == instead.end() ? v : found->second;
    }
  };
  for (BoundNode& node : graph.nodes) {
    replace(node.inputs);
  }
  replace(graph.outputs);
  prune(graph);
  return made;
}

uint64_t hold(BoundGraph& makes, BoundGraph& reads, uint64_t begin,
              const device::Capabilities& capabilities) {
  const uint64_t part_bytes = arena_part_bytes(capabilities);
  makes.held.offsets.clear();
  for (const ValueId v : makes.held.values) {
    const uint64_t bytes = round_up(bytes_of(makes[v]), capabilities.alignment);
    begin = inside_part(begin, bytes, part_bytes);
    makes.held.offsets.push_back(begin);
    begin += bytes;
  }
  reads.held.offsets = makes.held.offsets;
  return begin;
}

std::vector<ValueId> smallest(const BoundGraph& graph, std::vector<ValueId> values,
                              uint64_t bytes) {
  std::ranges::stable_sort(values, {}, [&](ValueId v) { return bytes_of(graph[v]); });
  size_t n = 0;
  for (; n < values.size() && bytes_of(graph[values[n]]) <= bytes; ++n) {
    bytes -= bytes_of(graph[values[n]]);
  }
  values.resize(n);
  return values;
}

}  // namespace bowline::detail::plan
