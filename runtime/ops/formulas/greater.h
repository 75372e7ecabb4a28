//! of floats integers
COMPARE(greater) { return less(b, a); }
