// RmsProp: steps relative to a running mean of the squared gradients.
//
//   g = grad * scale + weight_decay * w
//   v = alpha * v + (1 - alpha) * g^2
//   centered:       m = alpha * m + (1 - alpha) * g,  root = sqrt(max(v - m^2, 0)) + eps
//   else:           root = sqrt(v) + eps
//   with momentum:  b = momentum * b + g / root,  w = w - learning_rate * b
//   else:           w = w - learning_rate * g / root
//
// Source    Tieleman and Hinton, "Lecture 6.5 - rmsprop", 2012; Graves, "Generating Sequences With
//           Recurrent Neural Networks", 2013, for the centered form; as torch.optim.RMSprop: eps
//           is outside of the root. Where rounding makes v - m^2 negative PyTorch returns NaN.
//! decay l2 = 0
//! number alpha = 0.99 in [0, 1): decay rate of the mean square
//! number momentum = 0 in [0, 1): momentum factor
//! number eps = 1e-8 in (0, inf): avoids a division by 0
//! flag centered: divide by the standard deviation
//! state v of squares
//! state m if centered
//! state b if momentum

S rest;

STEP(rms_prop) { rest = 1.0f - alpha; }

UPDATE(rms_prop) {
  F step = fma_of(weight_decay, w, g);
  v = fma_of(rest * step, step, alpha * v);
  F variance = v;
  if (has_m) {
    m = fma_of(rest, step, alpha * m);
    variance = fma_of(-m, m, v);
    variance = select(negative(variance), 0.0f, variance);
  }
  step = step / (sqrt_of(variance) + eps);
  if (has_b) {
    b = fma_of(momentum, b, step);
    step = b;
  }
  w = fma_of(-rate, step, w);
}
