//! of floats integers
BINARY(mul) { return a * b; }
