// The gradient of a bound graph, built from operators.
//
// The nodes that compute gradients are appended to the graph. Contributions to one value are summed with Add in the
// order of the reverse walk; contributions to a storage go into its gradient row with AccumulateGrad, in that order. The gradient of a
// Repeat is a Repeat that runs backwards over the values that the forward one keeps.
#pragma once

#include "graph/infer.h"

namespace bowline::graph {

// The gradient row (role gradient) of a trainable storage; none for a frozen one.
using GradientRow = std::optional<uint32_t>;

struct GradientOptions {
  std::span<const GradientRow> rows;   // by tie index of the weight
  std::span<const uint64_t> elements;  // by tie index, of gradient rows too
};

struct TrainingGraph {
  Graph graph;  // forward and backward nodes; the outputs are those of the forward graph
  size_t backward_begin = 0;  // first node of the backward part
};

// `loss` is a scalar f32 output of the graph.
// Errors  bad_argument: the loss is not a scalar; a path to a trainable storage goes through an
// operator without a gradient (the node is named).
Result<TrainingGraph> differentiate(Graph graph, ValueId loss, const GradientOptions& options);

}  // namespace bowline::graph
