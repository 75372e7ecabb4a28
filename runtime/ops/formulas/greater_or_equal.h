//! of floats integers
COMPARE(greater_or_equal) { return less(b, a) || equal(a, b); }
