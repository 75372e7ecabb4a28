// Adagrad: steps that shrink with the sum of all squared gradients.
//
//   g = grad * scale + weight_decay * w
//   s = s + g^2
//   w = w - learning_rate / (1 + (update - 1) * learning_rate_decay) * g / (sqrt(s) + eps)
//
// Source    Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning", 2011, as
//           torch.optim.Adagrad: s begins at 0.
//! decay l2 = 0
//! number learning_rate_decay = 0 in [0, inf): decay of the learning rate
//! number eps = 1e-10 in (0, inf): avoids a division by 0
//! state s of squares
//! step update: u32 = 1

S step_size;

STEP(adagrad) { step_size = rate / (1.0f + (update - 1.0f) * learning_rate_decay); }

UPDATE(adagrad) {
  const F step = fma_of(weight_decay, w, g);
  s = fma_of(step, step, s);
  w = fma_of(-step_size, step / (sqrt_of(s) + eps), w);
}
