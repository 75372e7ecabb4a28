//! of floats integers
BINARY(min) { return select(less(b, a) || is_nan(b), b, a); }
GRADIENT_A(min) { return select(less(b, a), 0.0f, select(equal(a, b), dy * F(0.5f), dy)); }
GRADIENT_B(min) { return select(less(a, b), 0.0f, select(equal(a, b), dy * F(0.5f), dy)); }
