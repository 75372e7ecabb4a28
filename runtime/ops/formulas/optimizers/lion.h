// Lion: steps of one size, in the direction of the sign of a momentum.
//
//   g = grad * scale
//   w = w * (1 - learning_rate * weight_decay) - learning_rate * sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g
//
// Numerics  the sign of 0 is 0. Where the rounding errors of the sum are larger than the sum, its
//           sign may be any.
// Source    Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2.
//! decay decoupled = 0
//! number beta1 = 0.9 in [0, 1): weight of the momentum in an update
//! number beta2 = 0.99 in [0, 1): decay rate of the momentum
//! state m

S keep;
S rest1;
S rest2;

STEP(lion) {
  keep = 1.0f - rate * weight_decay;
  rest1 = 1.0f - beta1;
  rest2 = 1.0f - beta2;
}

UPDATE(lion) {
  const F direction = fma_of(rest1, g, beta1 * m);
  const F zero_or_nan = select(is_nan(direction), direction, 0.0f);
  const F sign = select(negative(direction), -1.0f, select(positive(direction), 1.0f, zero_or_nan));
  m = fma_of(rest2, g, beta2 * m);
  w = fma_of(-rate, sign, w * keep);
}
