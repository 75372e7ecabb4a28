// The divisors of a loss that is a mean, or that adds several means. Internal to graph/.
#pragma once

#include "graph/differentiator.h"

namespace bowline::detail::graph {

// The sum of the weights of the terms of `loss`, a value of `graph`, which is the outer graph. None
// if no operator on the way to `loss` says its weight. Nodes that compute the sum are appended. If
// the loss adds several means, it is that of the first mean whose weights depend on the batch, or
// else that of the first mean. A Repeat is treated as if its iterations were written out.
Result<std::optional<LossWeight>> loss_weight(Differentiator& d, BoundGraph& graph, ValueId loss);

// One of the means that a loss adds: what it is divided by.
struct LossMean {
  bool counted = false;  // the batch decides the sum of the weights
  double terms = 1;      // the divisor if `counted` is false
};

// A loss with a factor for each of the means that it adds. Micro-batches need these factors
// if the means have different divisors.
struct FactoredLoss {
  // One weight suits every term of the loss that depends on the batch. No factor is needed.
  bool has_one_weight = true;
  // The outputs are the loss alone: the sum of all means, each times its factor. The factors are
  // inputs behind those of the batch, f32 [], with the names factor_name(0), factor_name(1), ... in
  // the order of `means`.
  BoundGraph graph;
  ValueId loss = kNoValue;
  // From the inputs of the batch to the sums of the weights of the counted means, in the order of
  // `means`, f32 [] each.
  BoundGraph weights;
  std::vector<LossMean> means;
};

std::string factor_name(size_t mean);

// `one_shape`: all batches have the shapes of this graph. A divisor that does not depend on the
// batch is then the same fraction of its sum in every micro-batch. A product of means counts as one
// mean. A term without a divisor has the same weight in every micro-batch.
// Errors  unsupported: one result of a Repeat adds means with different divisors.
Result<FactoredLoss> factored_loss(const BoundGraph& graph, ValueId loss,
                                   const GradientOptions& options, bool one_shape);

}  // namespace bowline::detail::graph
