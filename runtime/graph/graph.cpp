#include "graph/graph.h"

#include <set>

namespace bowline::detail::graph {

template <class Graph>
std::string describe(const Graph& graph, size_t node) {
  const auto& n = graph.nodes[node];
  std::string out = format("node {}", node);
  if (!n.name.empty()) {
    out += format(" \"{}\"", n.name);
  }
  return out + format(" ({})", n.op);
}

template std::string describe(const GenericGraph& graph, size_t node);
template std::string describe(const BoundGraph& graph, size_t node);

template <class Graph>
Graph deep_copy(const Graph& graph) {
  Graph out = graph;
  for (auto& node : out.nodes) {
    if (node.repeat) {
      node.repeat = std::make_shared<Repeat<Graph>>(*node.repeat);
      node.repeat->body = std::make_shared<Graph>(deep_copy(*node.repeat->body));
    }
  }
  return out;
}

template GenericGraph deep_copy(const GenericGraph& graph);
template BoundGraph deep_copy(const BoundGraph& graph);

template <class Graph>
void renumber(Graph& graph) {
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    for (uint32_t o = 0; o < graph.nodes[n].outputs.size(); ++o) {
      graph[graph.nodes[n].outputs[o]].node = n;
      graph[graph.nodes[n].outputs[o]].output = o;
    }
  }
}

template void renumber(GenericGraph& graph);
template void renumber(BoundGraph& graph);

bool writes_storage(const BoundNode& node) {
  if (node.repeat) {
    for (const BoundNode& inner : node.repeat->body->nodes) {
      if (writes_storage(inner)) {
        return true;
      }
    }
  }
  return op_def(node.op).updates[0].output >= 0;
}

std::vector<uint32_t> storages_of(const BoundGraph& graph) {
  std::set<uint32_t> ties;
  for (const BoundGraph* const g : with_bodies(graph)) {
    for (const BoundNode& node : g->nodes) {
      for (const ValueId v : node.inputs) {
        for (const StorageUse& use : (*g)[v].uses) {
          ties.insert(use.tie);
        }
      }
    }
  }
  return {ties.begin(), ties.end()};
}

void prune(BoundGraph& graph) {
  std::vector<bool> used(graph.values.size(), false);
  for (const ValueId v : graph.outputs) {
    used[v] = true;
  }
  std::vector<bool> kept(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const BoundNode& node = graph.nodes[i];
    kept[i] = writes_storage(node);
    for (const ValueId v : node.outputs) {
      kept[i] = kept[i] || used[v];
    }
    for (const ValueId v : node.inputs) {
      used[v] = used[v] || kept[i];
    }
  }
  std::vector<BoundNode> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (kept[i]) {
      nodes.push_back(std::move(graph.nodes[i]));
    }
  }
  graph.nodes = std::move(nodes);
  renumber(graph);
}

}  // namespace bowline::detail::graph
