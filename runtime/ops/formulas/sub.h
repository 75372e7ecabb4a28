//! of floats integers
BINARY(sub) { return a - b; }
