//! of floats integers
COMPARE(less) { return less(a, b); }
