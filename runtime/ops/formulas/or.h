//! of truths
BINARY(or) { return select(equal(a, 0.0f), b, a); }
