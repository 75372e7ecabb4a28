#include <numeric>

#include "graph/fuse.h"

namespace bowline::detail::graph {

bool drop_what_trains(BoundGraph& graph) {
  std::vector<ValueId> same(graph.values.size());
  std::iota(same.begin(), same.end(), ValueId{0});
  std::vector<BoundNode> kept;
  bool any = false;
  for (BoundNode& node : graph.nodes) {
    for (ValueId& v : node.inputs) {
      v = same[v];
    }
    if (op_def(node.op).only_trains) {
      same[node.outputs[0]] = node.inputs[0];
      any = true;
      continue;
    }
    any = (node.repeat && drop_what_trains(*node.repeat->body)) || any;
    kept.push_back(std::move(node));
  }
  for (ValueId& v : graph.outputs) {
    v = same[v];
  }
  graph.nodes = std::move(kept);
  renumber(graph);
  return any;
}

}  // namespace bowline::detail::graph
