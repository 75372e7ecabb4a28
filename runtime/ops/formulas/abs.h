//! of floats integers
FORWARD(abs) { return abs_of(x); }
GRADIENT(abs) { return dy * select(positive(x), 1.0f, select(negative(x), -1.0f, x)); }
