FORWARD(silu) { return times_sigmoid(x, x); }
GRADIENT(silu) {
  F rest;
  F s = sigmoid(x, rest);
  return dy * (s * fma_of(x, rest, 1.0f));
}
