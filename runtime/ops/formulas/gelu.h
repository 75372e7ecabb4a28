//! choice form
FORWARD(gelu_erf) {
  F density;
  return x * normal_cdf(x, density);
}
GRADIENT(gelu_erf) {
  F density;
  F cdf = normal_cdf(x, density);
  return dy * fma_of(x, density, cdf);
}

// x (1 + tanh(u)) / 2 = x s(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
FORWARD(gelu_tanh) { return times_sigmoid(x, x * fma_of(x * x, 0.0713548163f, 1.59576912f)); }
// Beyond 20 the slope of s is 0; the bound keeps x^3 from overflowing against it.
GRADIENT(gelu_tanh) {
  F rest;
  F s = sigmoid(x * fma_of(x * x, 0.0713548163f, 1.59576912f), rest);
  F b = min_of(max_of(x, -20.0f), 20.0f);
  F slope = fma_of(b * b, 0.2140644488f, 1.59576912f);
  return dy * (s + (s * rest) * (b * slope));
}
