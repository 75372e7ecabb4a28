//! of floats integers
COMPARE(less_or_equal) { return less(a, b) || equal(a, b); }
