// Dynamic dimensions in a bound graph ("counted" in code): finds the dynamic axes of all values and
// keeps operators from using elements behind the current size.
//
// Shapes, offsets and launches use the maximum (the capacity). Behind the current size (the count),
// elements are undefined. The rule of each operator (OpDef::counted) says which output axes are
// dynamic. If an operator combines elements along a dynamic axis, a MaskTail node sets the
// undefined elements to a neutral value, or the kernel stops at the count.
#pragma once

#include "graph/infer.h"
#include "graph/model_state.h"

namespace bowline::detail::graph {

// Sets BoundValue::counted, BoundGraph::counted and BoundNode::read_counts, and adds MaskTail
// nodes. `capacities` are the dims that bind() used. Without dynamic dimensions, nothing changes.
// Errors  unsupported: an operator cannot take a dynamic axis, or has no rule for it. The message
//         names the node, the axis and the dim.
Status count(BoundGraph& graph, const std::vector<NamedDim>& dims, Dims capacities);

}  // namespace bowline::detail::graph
