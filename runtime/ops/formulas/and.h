//! of truths
BINARY(and) { return a * b; }
