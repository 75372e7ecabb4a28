//! of floats integers
FORWARD(neg) { return -x; }
