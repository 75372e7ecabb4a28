//! of floats integers truths
COMPARE(equal) { return equal(a, b); }
