//! of floats integers
FORWARD(sign) { return select(positive(x), 1.0f, select(negative(x), -1.0f, x)); }
