// Sgd: stochastic gradient descent, with momentum and weight decay as options.
//
//   g = grad * scale + weight_decay * w
//   with momentum:  b = first update ? g : momentum * b + g,  g = nesterov ? g + momentum * b : b
//   w = w - learning_rate * g
//
// Source    Sutskever et al., "On the importance of initialization and momentum in deep learning",
//           2013, in the form of PyTorch, where the learning rate stays outside of the buffer.
//! decay l2 = 0
//! number momentum = 0 in [0, 1): momentum factor
//! flag nesterov: use Nesterov momentum
//! state b if momentum
//! step update: u32 = 1

UPDATE(sgd) {
  F step = fma_of(weight_decay, w, g);
  if (has_b) {
    if (update == 1.0f) {
      b = step;
    } else {
      b = fma_of(momentum, b, step);
    }
    if (nesterov) {
      step = fma_of(momentum, b, step);
    } else {
      step = b;
    }
  }
  w = fma_of(-rate, step, w);
}
