//! constants factor
FORWARD(scale) { return p * x; }
