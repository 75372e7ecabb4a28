//! of floats integers
BINARY(add) { return a + b; }
