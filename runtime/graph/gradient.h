// The gradient of a bound graph, built from operators.
//
// The nodes that compute gradients are appended to the graph. Contributions to one value are summed
// with Add in the order of the reverse walk; contributions to a storage go into its gradient row
// with AccumulateGrad, in that order. The gradient of a Repeat is a Repeat that runs backwards over
// the values that the forward Repeat keeps. Values that are not kept are recomputed before their
// first reader: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once

#include <map>
#include <set>

#include "graph/infer.h"

namespace bowline::detail::graph {

// The tie index of the gradient (role gradient) of a trainable storage. nullopt: it is frozen.
using GradientRow = std::optional<uint32_t>;

// Identifies a node of the forward part by its first output, `value`. `path` are the Repeats around
// it, from the outside in, each as a node of the surrounding graph.
struct ForwardNode {
  std::vector<uint32_t> path;
  ValueId value = kNoValue;
  auto operator<=>(const ForwardNode&) const = default;
};

struct GradientOptions {
  std::span<const GradientRow> rows;   // by tie index of the weight
  std::span<const uint64_t> elements;  // by tie index, of gradient rows too
  // (optional) Nodes that the backward part recomputes, so that their results are not kept. The
  // same kernels return the same bits.
  const std::set<ForwardNode>* again = nullptr;
  // (optional) Differentiates loss * w / weight_unit. w is the sum of the weights of the terms of
  // the loss: the number of elements or of rows that count, or the sum of their class weights. The
  // gradients of micro-batches then add up to the gradient of the mean over all their terms.
  bool weighs_loss = false;
  double weight_unit = 0;  // 0: the loss_terms of this graph, at least 1
};

// Results of a forward node that are kept because the backward part reads them.
struct Kept {
  uint64_t bytes = 0;   // of all iterations
  bool costly = false;  // OpDef::costly
};

struct TrainingGraph {
  BoundGraph graph;  // forward and backward nodes; the outputs are those of the forward graph
  // The graph has one more output at the end, f32 []: the w of GradientOptions::weighs_loss.
  bool has_loss_weight = false;
  double loss_terms = 1;             // w if every term counts with weight 1
  double weight_unit = 1;            // what w was divided by
  size_t backward_begin = 0;         // first node of the backward part
  std::map<ForwardNode, Kept> kept;  // nodes that could be recomputed
  size_t again = 0;                  // number of recomputed nodes
};

// Appends the gradient of `loss`, a scalar f32 output of the graph.
// Errors  bad_argument: the loss is not a scalar.
//         bad_argument: a trainable storage reaches the loss only through an operator without a
//         gradient. The message names the node.
Result<TrainingGraph> differentiate(BoundGraph graph, ValueId loss, const GradientOptions& options);

}  // namespace bowline::detail::graph
