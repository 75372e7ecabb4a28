// The gradient of a bound graph, built from operators.
//
// The nodes that compute gradients are appended to the graph. Contributions to one value are summed
// with Add in the order of the reverse walk; contributions to a storage go into its gradient row
// with AccumulateGrad, in that order. The gradient of a Repeat is a Repeat that runs backwards over
// the values that the forward one keeps. What is not kept is computed again, in front of its first
// reader: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once

#include <map>
#include <set>

#include "graph/infer.h"

namespace bowline::detail::graph {

// The gradient row (role gradient) of a trainable storage; none for a frozen one.
using GradientRow = std::optional<uint32_t>;

// A node of the forward part by its first output: in the body of the Repeats `path`, each a node of
// the graph around it.
struct ForwardNode {
  std::vector<uint32_t> path;
  ValueId value = kNoValue;
  auto operator<=>(const ForwardNode&) const = default;
};

struct GradientOptions {
  std::span<const GradientRow> rows;   // by tie index of the weight
  std::span<const uint64_t> elements;  // by tie index, of gradient rows too
  // (optional) Nodes whose results are not kept for the backward part, which runs them once more.
  // The same kernels give the same bits.
  const std::set<ForwardNode>* again = nullptr;
  // (optional) The gradient is that of loss * w / weight_unit. w is the sum of the weights of the
  // terms of the loss: the rows that count, the weights of their classes, or the elements. So
  // gradients of micro-batches add up to that of all their terms.
  bool weighs_loss = false;
  double weight_unit = 0;  // 0: the loss_terms of this graph, but at least 1
};

// What the backward part reads of a forward node, and so is kept from the one to the other.
struct Kept {
  uint64_t bytes = 0;   // of all iterations
  bool costly = false;  // OpDef::costly
};

struct TrainingGraph {
  BoundGraph graph;  // forward and backward nodes; the outputs are those of the forward graph
  // The graph has one more output behind those, f32 []: the w of GradientOptions::weighs_loss.
  bool has_loss_weight = false;
  double loss_terms = 1;             // w if every term counts with weight 1
  double weight_unit = 1;            // what w was divided by
  size_t backward_begin = 0;         // first node of the backward part
  std::map<ForwardNode, Kept> kept;  // those that could be run again
  size_t again = 0;                  // nodes that are
};

// `loss` is a scalar f32 output of the graph.
// Errors  bad_argument: the loss is not a scalar; a path to a trainable storage goes through an
// operator without a gradient (the node is named).
Result<TrainingGraph> differentiate(BoundGraph graph, ValueId loss, const GradientOptions& options);

}  // namespace bowline::detail::graph
