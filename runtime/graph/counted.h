// Counted dims: which axes of the values of a bound graph hold as many elements as a dim has in a
// run, and what keeps the rest of them from being seen.
//
// Sizes, offsets and launches are those of the capacities. Behind a count a value holds anything;
// the rule of each operator (OpDef::counted) says what that means for its outputs. Where it mixes
// the elements of a counted axis, a MaskTail in front gives them a neutral value, or its kernel
// stops at the count.
#pragma once

#include "graph/infer.h"
#include "graph/model_state.h"

namespace bowline::detail::graph {

// Marks the values of a graph that bind() made (ValueInfo::counted, Graph::counted,
// Node::read_counts) and adds the nodes that mask. `capacities` are the dims that it was bound to.
// Without counted dims nothing changes.
// Errors  unsupported: an operator cannot take a counted axis, or has no rule for it; the node, the
//         axis and the dim are named.
Status count(BoundGraph& graph, const std::vector<NamedDim>& dims, Dims capacities);

}  // namespace bowline::detail::graph
