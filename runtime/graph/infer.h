// Shapes and dtypes: runs the inference of every operator over a graph.
#pragma once

#include "graph/graph.h"

namespace bowline::detail::graph {

using Dims = std::span<const BoundDim>;

// Shape of an input whose dims are numbers or names. Errors  bad_argument: a name that is not
// bound.
Result<Shape> bind_shape(const std::vector<GraphDim>& dims, Dims bound);

// The templates are defined for both kinds of graph. The sizes in a bound graph have no names, so
// it needs no dims.

// Shape and dtype of the outputs of one node, from its inputs, into the values that the node names.
// Errors  bad_argument: a rule of the operator is broken; the node is named.
template <class Graph>
Status infer_node(Graph& graph, size_t node, Dims bound = {});

// All nodes; the inputs and parameters have their shapes already.
template <class Graph>
Status infer(Graph& graph, Dims bound = {});

}  // namespace bowline::detail::graph
