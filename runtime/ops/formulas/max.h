//! of floats integers
BINARY(max) { return select(less(a, b) || is_nan(b), b, a); }
GRADIENT_A(max) { return select(less(a, b), 0.0f, select(equal(a, b), dy * F(0.5f), dy)); }
GRADIENT_B(max) { return select(less(b, a), 0.0f, select(equal(a, b), dy * F(0.5f), dy)); }
