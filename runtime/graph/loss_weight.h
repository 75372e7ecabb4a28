// The divisors of a loss that is a mean, or that adds several means. Internal to graph/.
#pragma once

#include "graph/differentiator.h"

namespace bowline::detail::graph {

// Returns the sum of the weights of the terms of `loss`, a value of the outer graph `graph`.
// nullopt: no operator on the way to `loss` has a loss weight. Appends the nodes that compute the
// sum. If the loss adds several means, returns the sum for the first mean whose weights depend on
// the batch, or else for the first mean. A Repeat is treated as if its iterations were written out.
Result<std::optional<LossWeight>> loss_weight(Differentiator& d, BoundGraph& graph, ValueId loss);

// The divisor of one of the means that a loss adds.
struct LossMean {
  bool counted = false;  // the divisor depends on the batch
  double terms = 1;      // the divisor if `counted` is false
};

// A loss with a factor for each of the means that it adds. Micro-batches need these factors
// if the means have different divisors.
struct FactoredLoss {
  // All terms of the loss that depend on the batch have the same divisor. No factor is needed.
  bool has_one_weight = true;
  // The only output is the loss: the sum of all means, each multiplied by its factor. The factors
  // are f32 [] inputs after the inputs of the batch, with the names factor_name(0), factor_name(1),
  // ... in the order of `means`.
  BoundGraph graph;
  ValueId loss = kNoValue;
  // Computes the divisors of the `counted` means from the inputs of the batch. The outputs are f32
  // [] each, in the order of `means`.
  BoundGraph weights;
  std::vector<LossMean> means;
};

std::string factor_name(size_t mean);

// Builds the loss with factors. `one_shape`: all batches have the shapes of this graph. A divisor
// that does not depend on the batch is then the same in every micro-batch. A product of means
// counts as one mean. A term without a divisor has the same weight in every micro-batch. Errors
// unsupported: one result of a Repeat adds means with different divisors.
Result<FactoredLoss> factored_loss(const BoundGraph& graph, ValueId loss,
                                   const GradientOptions& options, bool one_shape);

}  // namespace bowline::detail::graph
