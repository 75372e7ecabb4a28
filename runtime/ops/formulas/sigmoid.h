FORWARD(sigmoid) {
  F rest;
  return sigmoid(x, rest);
}
GRADIENT(sigmoid) {
  F rest;
  F s = sigmoid(x, rest);
  return dy * (s * rest);
}
