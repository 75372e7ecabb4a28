// Fusion of x * sigmoid(x): see graph/fuse.h.
//
//! makes Silu of Sigmoid
#include "graph/fuse.h"
#include "ops/build.h"

namespace bowline::detail::graph {

bool join_gates(BoundGraph& graph) {
  std::vector<uint32_t> reads(graph.values.size());
  for (const BoundNode& node : graph.nodes) {
    for (const ValueId v : node.inputs) {
      ++reads[v];
    }
  }
  for (const ValueId v : graph.outputs) {
    ++reads[v];
  }
  bool any = false;
  for (BoundNode& node : graph.nodes) {
    for (size_t i = 0; node.op == Op::Mul && i < 2; ++i) {
      const ValueId x = node.inputs[i], gate = node.inputs[1 - i];
      const BoundValue& from = graph[gate];
      if (from.kind != ValueKind::result || reads[gate] != 1) {
        continue;
      }
      const BoundNode& maker = graph.nodes[from.node];
      if (maker.op == Op::Sigmoid && maker.inputs[0] == x) {
        node.op = Op::Silu;
        node.attributes = no_attributes();
        node.inputs = {x};
        any = true;
      }
    }
  }
  if (any) {
    prune(graph);
  }
  return any;
}

}  // namespace bowline::detail::graph
