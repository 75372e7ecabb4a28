FORWARD(hard_swish) { return x * min_of(max_of(fma_of(x, 0.166666667f, 0.5f), 0.0f), 1.0f); }
GRADIENT(hard_swish) {
  return select(less(-3.0f, x), select(less(x, 3.0f), dy * fma_of(x, 0.333333333f, 0.5f), dy),
                0.0f);
}
