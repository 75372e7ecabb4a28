// Parts shared by the rewrites that replace several nodes by a fused one.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>

#include "graph/fuse.h"

namespace bowline::detail::graph {

class Rewriter {
 public:
  Rewriter(BoundGraph& graph, const device::OpenDevice& device)
      : graph_(graph),
        device_(device),
        readers_(graph.values.size()),
        is_gone_(graph.nodes.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId v : graph.nodes[n].inputs) {
        readers_[v].push_back(n);
      }
    }
    for (const ValueId v : graph.outputs) {
      readers_[v].push_back(kOutput);
    }
  }

  // Drops the nodes that are gone. Returns how many of them were before node `begin`.
  size_t drop_nodes(size_t begin) {
    std::vector<BoundNode> kept;
    size_t gone = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (is_gone_[n] == 0) {
        kept.push_back(std::move(graph_.nodes[n]));
      } else if (n < begin) {
        ++gone;
      }
      for (auto [at, last] = moved_.equal_range(n); at != last; ++at) {
        kept.push_back(std::move(graph_.nodes[at->second]));
      }
    }
    graph_.nodes = std::move(kept);
    renumber(graph_);
    return gone;
  }

 protected:
  static constexpr size_t kOutput = SIZE_MAX;  // a reader: the graph returns the value
  static constexpr size_t kNone = SIZE_MAX - 1;

  // The only node that reads v, or kNone.
  size_t only_reader(ValueId v) const {
    return readers_[v].size() == 1 && readers_[v][0] != kOutput ? readers_[v][0] : kNone;
  }
  // Whether the device has a kernel for the node.
  bool can_run(const BoundNode& node) const {
    std::vector<device::Operand> in, out;
    const auto operand = [&](ValueId v) {
      const BoundValue& info = graph_[v];
      return device::Operand{.dtype = info.dtype, .encoding = info.encoding, .shape = info.shape};
    };
    std::ranges::transform(node.inputs, std::back_inserter(in), operand);
    std::ranges::transform(node.outputs, std::back_inserter(out), operand);
    return device_.query({node.op, out[0].dtype, node.attributes, in, out}).reason.empty();
  }
  const Shape& shape(ValueId v) const { return graph_[v].shape; }
  void move_behind(size_t node, size_t target) {
    is_gone_[node] = 1;
    moved_.emplace(target, node);
  }

  BoundGraph& graph_;
  const device::OpenDevice& device_;
  std::vector<std::vector<size_t>> readers_;  // by value: the nodes, or kOutput
  std::vector<char> is_gone_;                 // by node: dropped, or moved
  std::multimap<size_t, size_t> moved_;       // nodes, by the node that they follow
};

// Rewrites the graph and the bodies of its Repeats. Returns the place of node `begin` afterwards.
template <class Rewrite>
size_t rewrite_all(BoundGraph& graph, const device::OpenDevice& device, size_t begin) {
  for (const BoundNode& node : graph.nodes) {
    if (node.repeat) {
      rewrite_all<Rewrite>(*node.repeat->body, device, 0);
    }
  }
  Rewrite rewrite(graph, device);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    rewrite.fuse_at(n);
  }
  return begin - rewrite.drop_nodes(begin);
}

}  // namespace bowline::detail::graph
