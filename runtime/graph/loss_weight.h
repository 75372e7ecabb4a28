// What the mean that a loss is was divided by. Internal to graph/.
#pragma once

#include "graph/differentiator.h"

namespace bowline::detail::graph {

// The sum of the weights of the terms of `loss`, a value of `graph`, which is the outer one; none if no operator on the way says
// it. Nodes that compute it are appended. Where a loss adds several means, it is that of the first one whose weights the batch
// decides, or else that of the first one. A Repeat is looked through as if it were written out.
Result<std::optional<LossWeight>> loss_weight(Differentiator& d, Graph& graph, ValueId loss);

}  // namespace bowline::detail::graph
