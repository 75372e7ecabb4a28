// The divisor of a loss that is a mean. Internal to graph/.
#pragma once

#include "graph/differentiator.h"

namespace bowline::detail::graph {

// The sum of the weights of the terms of `loss`, a value of `graph`, which is the outer graph. None if no operator on the way to
// `loss` says its weight. Nodes that compute the sum are appended. If the loss adds several means, it is that of the first mean
// whose weights depend on the batch, or else that of the first mean. A Repeat is treated as if its iterations were written out.
Result<std::optional<LossWeight>> loss_weight(Differentiator& d, Graph& graph, ValueId loss);

}  // namespace bowline::detail::graph
