// Shapes and dtypes: runs the inference of every operator over a graph.
#pragma once

#include "graph/graph.h"

namespace bowline::detail::graph {

using Dims = std::span<const BoundDim>;

// Returns the shape of an input: replaces dimension names by their sizes in `bound`.
// Errors  bad_argument: a name is not in `bound`.
Result<Shape> bind_shape(const std::vector<GraphDim>& dims, Dims bound);

// The templates below are defined for both kinds of graph. A bound graph has no dimension names, so
// it needs no `bound`.

// Sets shape and dtype of the outputs of one node, from its inputs.
// Errors  bad_argument: a rule of the operator is broken. The message names the node.
template <class Graph>
Status infer_node(Graph& graph, size_t node, Dims bound = {});

// Infers all nodes. Inputs and parameters must have their shapes already.
template <class Graph>
Status infer(Graph& graph, Dims bound = {});

}  // namespace bowline::detail::graph
