BINARY(pow) { return pow_of(a, b); }
GRADIENT_A(pow) { return select(equal(b, 0.0f), 0.0f, dy * (b * pow_of(a, b - 1.0f))); }
GRADIENT_B(pow) {
  return select(equal(a, 0.0f) && !negative(b), 0.0f, dy * (pow_of(a, b) * log_of(a)));
}
