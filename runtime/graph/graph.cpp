#include "graph/graph.h"

#include <set>

namespace bowline::detail::graph {

std::string describe(const Graph& graph, size_t node) {
  const Node& n = graph.nodes[node];
  std::string out = format("node {}", node);
  if (!n.name.empty()) {
    out += format(" \"{}\"", n.name);
  }
  return out + format(" ({})", n.op);
}

bool writes_storage(const Node& node) {
  if (node.repeat) {
    for (const Node& inner : node.repeat->body->nodes) {
      if (writes_storage(inner)) {
        return true;
      }
    }
  }
  return op_def(node.op).updates[0].output >= 0;
}

namespace {

void add_storages(const Graph& graph, std::set<uint32_t>& ties) {
  for (const Node& node : graph.nodes) {
    for (const ValueId v : node.inputs) {
      for (const StorageUse& use : graph[v].uses) {
        ties.insert(use.tie);
      }
    }
    if (node.repeat) {
      add_storages(*node.repeat->body, ties);
    }
  }
}

}  // namespace

std::vector<uint32_t> storages_of(const Graph& graph) {
  std::set<uint32_t> ties;
  add_storages(graph, ties);
  return {ties.begin(), ties.end()};
}

void renumber(Graph& graph) {
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    for (uint32_t o = 0; o < graph.nodes[n].outputs.size(); ++o) {
      graph[graph.nodes[n].outputs[o]].node = n;
      graph[graph.nodes[n].outputs[o]].output = o;
    }
  }
}

void prune(Graph& graph) {
  std::vector<bool> used(graph.values.size(), false);
  for (const ValueId v : graph.outputs) {
    used[v] = true;
  }
  std::vector<bool> kept(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    kept[i] = writes_storage(node);
    for (const ValueId v : node.outputs) {
      kept[i] = kept[i] || used[v];
    }
    for (const ValueId v : node.inputs) {
      used[v] = used[v] || kept[i];
    }
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (kept[i]) {
      nodes.push_back(std::move(graph.nodes[i]));
    }
  }
  graph.nodes = std::move(nodes);
  renumber(graph);
}

}  // namespace bowline::detail::graph
