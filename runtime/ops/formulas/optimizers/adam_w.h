// AdamW: Adam with decoupled weight decay.
//
//   g = grad * scale,  w = w * (1 - learning_rate * weight_decay)
//   m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2
//   w = w - learning_rate * (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
//   bias_correction = 1 - beta^update
//
// Source    Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2.
//! decay decoupled = 0.01
//! number beta1 = 0.9 in [0, 1): decay of the first moment
//! number beta2 = 0.999 in [0, 1): decay of the second moment
//! number eps = 1e-8 in (0, inf): avoids a division by 0
//! state m
//! state v of squares
//! step bias_correction1: f32 = 1, bias_correction2: f32 = 1
//! correction bias_correction1 of beta1
//! correction bias_correction2 of beta2

S keep;
S rest1;
S rest2;
S inverse_root;
S step_size;

STEP(adam_w) {
  keep = S(D(1.0f) - D(rate) * D(weight_decay));
  rest1 = 1.0f - beta1;
  rest2 = 1.0f - beta2;
  inverse_root = S(D(1.0f) / sqrt_of(D(bias_correction2)));
  step_size = rate / bias_correction1;
}

UPDATE(adam_w) {
  m = fma_of(rest1, g - m, m);
  v = fma_of(rest2 * g, g, beta2 * v);
  w = fma_of(-step_size, m / fma_of(sqrt_of(v), inverse_root, eps), w * keep);
}
