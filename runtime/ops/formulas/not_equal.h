//! of floats integers truths
COMPARE(not_equal) { return !equal(a, b); }
